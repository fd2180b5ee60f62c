#include "tests/fuzz/fuzz_target.hpp"
#include "traces/weights/folder.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dflop;
  return run_fuzz_target(data, size, [](std::string_view text) {
    const WeightMap weights = parse_weight_map(text, "fuzz.json");
    require(parse_weight_map(weight_map_text(weights, 0), "again.json") == weights);
  });
}
