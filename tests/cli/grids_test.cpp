// The grids in the tree: each plan runs on the grid's model.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "experiments/checks/runs/study.hpp"
#include "experiments/presets/presets.hpp"
#include "tests/cli/run.hpp"

namespace dflop {
namespace grids_test {

/// Expects that a grid's plans can run live and be predicted from their own profiles.
void expect_plans_run(const PlanGrid& grid, const std::string& file) {
  const ModelSpec model = find_model(grid.model);
  for (const NamedPlan& named : complete_plans(grid, file, grid.gbs, model, find_cluster(grid.cluster))) {
    EXPECT_NO_THROW(require_measurable(named.plan, model)) << file << ": " << named.name;
  }
}

TEST(FidelityGrids, PlansRunOnTheirModels) {
  int grids = 0;
  for (const auto& entry : std::filesystem::directory_iterator(DFLOP_SOURCE_DIR "/traces/grids")) {
    const std::string file = entry.path().string();
    expect_plans_run(parse_plan_grid(testing::read_all(file), file), file);
    ++grids;
  }
  EXPECT_GE(grids, 7);
}

/// small-vlm has an encoder with 3 heads and an LLM with 6, so tp 2 splits only the LLM. Such a plan runs,
/// but a profile measures both at tp 2.
TEST(FidelityGrids, APlanThatNoProfilePredictsIsRejected) {
  testing::Sandbox sandbox;
  testing::write_all(
      sandbox.path("grid.json"),
      R"({"schema": "dflop.grid", "version": 1, "model": "small-vlm", "cluster": "a100-80g:1", "gbs": 8,
      "plans": [{"name": "odd", "encoder": {"tp": 1, "pp": 1, "dp": 1}, "llm": {"tp": 2, "pp": 1, "dp": 1},
                 "microbatches": 2}]})");
  testing::expect_error(sandbox.run("check runs --plans grid.json"),
                        {"grid.json", "plan 'odd'", "heads 3", "tp 2"});
}

}  // namespace grids_test
}  // namespace dflop
