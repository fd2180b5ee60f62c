#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "tests/fuzz/fuzz_target.hpp"
#include "traces/files/checkpoint.hpp"

namespace {

using namespace dflop;

/// NaN is not equal to itself, so bytes are compared.
void read_and_write(std::string_view bytes) {
  const std::string again = to_bytes(parse_checkpoint(bytes, "fuzz.ckpt"));
  require(to_bytes(parse_checkpoint(again, "again.ckpt")) == again);
}

/// With the lengths and the CRC-32 at the beginning put right: nearly all that fuzzing makes of a checkpoint
/// would end there, and never reach the header.
std::string repaired(std::string_view input) {
  constexpr std::size_t kPreambleBytes = 32;
  std::string bytes(input);
  if (bytes.size() < kPreambleBytes) return bytes;
  const auto set = [&](std::size_t at, auto number) {
    std::memcpy(bytes.data() + at, &number, sizeof number);
  };
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data() + 16, sizeof header_bytes);
  header_bytes = std::min<std::uint64_t>(header_bytes, bytes.size() - kPreambleBytes);
  set(12, std::uint32_t{0});
  set(16, header_bytes);
  set(24, std::uint64_t{bytes.size()});
  const auto* begin = reinterpret_cast<const Bytef*>(bytes.data());
  set(12, static_cast<std::uint32_t>(crc32_z(0, begin, kPreambleBytes + header_bytes)));
  return bytes;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  run_fuzz_target(data, size, read_and_write);
  return run_fuzz_target(data, size, [](std::string_view input) { read_and_write(repaired(input)); });
}
