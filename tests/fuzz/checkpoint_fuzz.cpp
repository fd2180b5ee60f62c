#include <zlib.h>

#include <string>

#include "tests/fuzz/fuzz_target.hpp"
#include "traces/checkpoints/index.hpp"

namespace {

using namespace dflop;

void read_and_write(std::string_view text) {
  const CheckpointIndex index = parse_checkpoint_index(text, "fuzz.json");
  require(parse_checkpoint_index(to_json(index), "again.json") == index);
}

/// Corrects the CRC-32 at the end of the input. Otherwise nearly all fuzzed indexes would be rejected there.
std::string repaired(std::string_view input) {
  constexpr std::string_view kBeforeNumber = ",\n  \"crc32\": ";
  const std::string text(input.substr(0, input.rfind(kBeforeNumber)));
  const auto crc = crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size());
  return text + std::string(kBeforeNumber) + std::to_string(crc) + "\n}\n";
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  run_fuzz_target(data, size, read_and_write);
  return run_fuzz_target(data, size, [](std::string_view input) { read_and_write(repaired(input)); });
}
