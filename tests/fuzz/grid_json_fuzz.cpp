#include "tests/fuzz/fuzz_target.hpp"
#include "traces/files/plan.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return dflop::run_fuzz_target(data, size, [](std::string_view text) {
    const dflop::PlanGrid grid = dflop::parse_plan_grid(text, "fuzz.json");
    dflop::require(!grid.plans.empty());
    for (const dflop::GridPlan& plan : grid.plans) {
      dflop::require(!plan.name.empty());
      dflop::require(!plan.file.empty() || (plan.plan.bins() >= 1 && plan.plan.bins() <= grid.gbs));
      dflop::require(plan.plan.ranks() >= 1);
    }
  });
}
