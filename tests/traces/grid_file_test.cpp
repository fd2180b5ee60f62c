#include "traces/files/plan.hpp"

#include <algorithm>

#include "tests/traces/file_fixtures.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace grid_file_test {

constexpr std::string_view kExample = R"({
  "schema": "dflop.grid", "version": 1, "model": "tiny-vlm", "cluster": "a100-80g-vtrain:1", "gbs": 8,
  "plans": [
    {"name": "one", "llm": {"tp": 2, "pp": 1, "dp": 1}, "microbatches": 2, "sequence_parallel": true},
    {"name": "two", "encoder": {"tp": 1, "pp": 1, "dp": 3}, "llm": {"tp": 1, "pp": 2, "dp": 2},
     "microbatches": 4, "schedule": "zb-h1", "recomputation": "selective", "zero1": false},
    {"name": "three", "file": "plans/three.json"}
  ]
})";

void expect_bad(std::string_view from, std::string_view to, const std::string& key,
                std::initializer_list<std::string_view> words) {
  const std::string text = replaced(std::string(kExample), from, to);
  expect_refused([&] { parse_plan_grid(text, "g.json"); }, "g.json: key '" + key + "'", words);
}

TEST(GridFile, ReadsShortFormsAndFiles) {
  const PlanGrid grid = parse_plan_grid(kExample, "g.json");
  EXPECT_EQ(grid.model, "tiny-vlm");
  EXPECT_EQ(grid.cluster, "a100-80g-vtrain:1");
  EXPECT_EQ(grid.gbs, 8);
  ASSERT_EQ(grid.plans.size(), 3U);

  const Plan& one = grid.plans[0].plan;
  EXPECT_EQ(one.layout, Layout::uniform);
  EXPECT_EQ(one.encoder, one.llm);
  EXPECT_EQ(one.llm, (ModulePlan{2, 1, 1, {}}));
  EXPECT_EQ(one.order, OrderKind::one_f_one_b);
  EXPECT_EQ(one.recomputation, Recomputation::none);
  EXPECT_TRUE(one.zero1);
  EXPECT_TRUE(one.sequence_parallel);

  const Plan& two = grid.plans[1].plan;
  EXPECT_EQ(two.layout, Layout::disaggregated);
  EXPECT_EQ(two.encoder, (ModulePlan{1, 1, 3, {}}));
  EXPECT_EQ(two.llm, (ModulePlan{1, 2, 2, {}}));
  EXPECT_EQ(two.microbatches, 4);
  EXPECT_EQ(two.gbs, 8);
  EXPECT_EQ(two.order, OrderKind::zb_h1);
  EXPECT_EQ(two.recomputation, Recomputation::selective);
  EXPECT_FALSE(two.zero1);
  EXPECT_FALSE(two.sequence_parallel);

  EXPECT_EQ(grid.plans[2].name, "three");
  EXPECT_EQ(grid.plans[2].file, "plans/three.json");
}

/// An encoder share turns a plan whose encoder has its own ranks into a shared one.
TEST(GridFile, ReadsShares) {
  const std::string text = replaced(std::string(kExample), "\"pp\": 1, \"dp\": 3},",
                                    "\"pp\": 1, \"dp\": 4}, \"encoder_share\": 0.25,");
  const Plan plan = parse_plan_grid(text, "g.json").plans[1].plan;
  EXPECT_EQ(plan.layout, Layout::shared);
  EXPECT_EQ(plan.encoder_share, 0.25);
  EXPECT_EQ(plan.gpus(), 4);
}

TEST(GridFile, ErrorsNameTheirPlace) {
  expect_bad("\"microbatches\": 2,", "\"encoder_share\": 0.5, \"microbatches\": 2,", "plans[0].encoder_share",
             {"encoder"});
  expect_bad("\"microbatches\": 4,", "\"encoder_share\": 2, \"microbatches\": 4,", "plans[1].encoder_share",
             {"2"});
  expect_bad("\"gbs\": 8", "\"gbs\": 0", "gbs", {"from 1", "0"});
  expect_bad("\"tp\": 2", "\"tp\": 0", "plans[0].llm.tp", {"0"});
  expect_bad("\"pp\": 2", "\"pp\": 2000", "plans[1].llm.pp", {"1024", "2000"});
  expect_bad("zb-h1", "zb-v", "plans[1].schedule", {"zb-h2", "zb-v"});
  expect_bad("selective", "some", "plans[1].recomputation", {"none", "some"});
  expect_bad("\"zero1\": false", "\"zero1\": 0", "plans[1].zero1", {"0"});
  expect_bad("\"zero1\"", "\"zero\"", "plans[1].zero", {"unknown key", "zero1"});
  expect_bad("\"file\"", "\"microbatches\": 1, \"file\"", "plans[2].microbatches", {"name, file"});
  expect_bad("\"plans/three.json\"", "\"\"", "plans[2].file", {"path"});
  expect_bad("\"three\"", "\"\"", "plans[2].name", {"name"});
  expect_bad("\"three\"", "\"two\"", "plans[2].name", {"a name that no earlier plan has", "two"});
  // 5 microbatches x dp 2 make 10 bins.
  expect_bad("\"microbatches\": 4", "\"microbatches\": 5", "plans[1].microbatches", {"5", "dp 2", "8"});
}

TEST(GridFile, HasAtLeastOnePlan) {
  const std::string none =
      R"({"schema": "dflop.grid", "version": 1, "model": "m", "cluster": "c", "gbs": 1, "plans": []})";
  expect_refused([&] { parse_plan_grid(none, "g.json"); }, "g.json: key 'plans'", {"at least one"});
}

/// Disaggregated encoder and LLM, pp 2, dp 2, tp 2, recomputation and two schedules, on 1 to 4 ranks.
TEST(GridFile, TheBundledGridCoversTheHostsFeatures) {
  const std::string path = std::string(DFLOP_SOURCE_DIR) + "/traces/grids/tiny-vlm-host.json";
  const PlanGrid grid = parse_plan_grid(read_text_file(path), path);
  EXPECT_GE(grid.plans.size(), 6U);
  const auto has = [&](auto&& property) {
    return std::any_of(grid.plans.begin(), grid.plans.end(),
                       [&](const GridPlan& p) { return property(p.plan); });
  };
  EXPECT_TRUE(has([](const Plan& p) { return p.layout == Layout::disaggregated; }));
  EXPECT_TRUE(has([](const Plan& p) { return p.llm.pp == 2; }));
  EXPECT_TRUE(has([](const Plan& p) { return p.llm.dp == 2; }));
  EXPECT_TRUE(has([](const Plan& p) { return p.llm.tp == 2; }));
  EXPECT_TRUE(has([](const Plan& p) { return p.recomputation == Recomputation::full; }));
  EXPECT_TRUE(has([](const Plan& p) { return p.order == OrderKind::gpipe; }));
  EXPECT_TRUE(has([](const Plan& p) { return p.order == OrderKind::zb_h1; }));
  for (const GridPlan& plan : grid.plans) EXPECT_LE(plan.plan.ranks(), 4) << plan.name;
}

}  // namespace grid_file_test
}  // namespace dflop
