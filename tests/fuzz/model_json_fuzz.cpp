#include "tests/fuzz/fuzz_target.hpp"
#include "traces/files/specs.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dflop::run_fuzz_target(data, size, [](std::string_view text) { dflop::parse_cluster(text, "fuzz.json"); });
  return dflop::run_fuzz_target(data, size,
                                [](std::string_view text) { dflop::parse_model(text, "fuzz.json"); });
}
