#include "tests/fuzz/fuzz_target.hpp"
#include "traces/schedule_file.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return dflop::run_fuzz_target(data, size, [](std::string_view text) {
    const std::string written = dflop::to_json(dflop::parse_schedule(text, "fuzz.json"));
    dflop::require(dflop::to_json(dflop::parse_schedule(written, "again.json")) == written);
  });
}
