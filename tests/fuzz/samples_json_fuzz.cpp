#include "tests/fuzz/fuzz_target.hpp"
#include "traces/files/samples.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return dflop::run_fuzz_target(data, size, [](std::string_view text) {
    const std::vector<dflop::Sample> samples = dflop::parse_samples(text, "fuzz.json");
    dflop::require(dflop::holds_samples(text));
    const std::string written = dflop::samples_json(samples);
    dflop::require(dflop::samples_json(dflop::parse_samples(written, "again.json")) == written);
  });
}
