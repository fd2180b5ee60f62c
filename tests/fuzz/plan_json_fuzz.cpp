#include "tests/fuzz/fuzz_target.hpp"
#include "traces/files/plan.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return dflop::run_fuzz_target(data, size, [](std::string_view text) {
    const dflop::Plan plan = dflop::parse_plan(text, "fuzz.json");
    dflop::require(dflop::parse_plan(dflop::to_json(plan), "again.json") == plan);
  });
}
