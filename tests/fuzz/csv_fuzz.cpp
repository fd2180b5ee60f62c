#include "tests/fuzz/fuzz_target.hpp"
#include "traces/data/records.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return dflop::run_fuzz_target(data, size,
                                [](std::string_view text) { dflop::parse_records(text, "fuzz.csv"); });
}
