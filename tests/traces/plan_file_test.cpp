#include "traces/files/plan.hpp"

#include "core/support/random.hpp"
#include "tests/traces/file_fixtures.hpp"

namespace dflop {
namespace plan_file_test {

Plan example() {
  Plan plan;
  plan.planner = "dflop";
  plan.model = "llava-ov-llama3-8b";
  plan.cluster = "a100-80g-vtrain:4";
  plan.gbs = 512;
  plan.encoder = {1, 1, 8, {27}};
  plan.llm = {4, 2, 3, {16, 16}};
  plan.microbatches = 16;
  return plan;
}

TEST(PlanFile, HasADocumentedForm) {
  EXPECT_EQ(to_json(example()), R"({
  "schema": "dflop.plan",
  "version": 1,
  "planner": "dflop",
  "model": "llava-ov-llama3-8b",
  "cluster": "a100-80g-vtrain:4",
  "gbs": 512,
  "layout": "disaggregated",
  "encoder": {
    "tp": 1,
    "pp": 1,
    "dp": 8,
    "layers": [27]
  },
  "llm": {
    "tp": 4,
    "pp": 2,
    "dp": 3,
    "layers": [16,16]
  },
  "microbatches": 16,
  "schedule": "1f1b",
  "recomputation": "full",
  "zero1": true,
  "sequence_parallel": true
}
)");
}

TEST(PlanFile, WritesChunksIfThereAreSeveral) {
  Plan plan = example();
  plan.order = OrderKind::interleaved;
  plan.chunks = 2;
  plan.llm.layers = {8, 8, 8, 8};
  const std::string text = to_json(plan);
  EXPECT_NE(text.find("  \"schedule\": \"interleaved\",\n  \"chunks\": 2,\n"), std::string::npos) << text;
  EXPECT_EQ(parse_plan(text, "p.json"), plan);
  EXPECT_EQ(to_json(example()).find("chunks"), std::string::npos);
}

TEST(PlanFile, WritesAPlacementThatIsNotTheDefault) {
  Plan plan = example();
  plan.placement = RankOrder::replica_major;
  const std::string text = to_json(plan);
  EXPECT_NE(text.find("  \"placement\": \"replica-major\",\n"), std::string::npos) << text;
  EXPECT_EQ(parse_plan(text, "p.json"), plan);
  EXPECT_EQ(to_json(example()).find("placement"), std::string::npos);
}

TEST(PlanFile, WritesStatesAndReshardThatAreNotTheDefault) {
  Plan plan = example();
  plan.optimizer_states = OptimizerStates::bf16;
  plan.reshard = Reshard::hub;
  const std::string text = to_json(plan);
  EXPECT_NE(text.find("  \"optimizer_states\": \"bf16\",\n  \"reshard\": \"hub\",\n"), std::string::npos)
      << text;
  EXPECT_EQ(parse_plan(text, "p.json"), plan);
  EXPECT_EQ(to_json(example()).find("optimizer_states"), std::string::npos);
  EXPECT_EQ(to_json(example()).find("reshard"), std::string::npos);
}

TEST(PlanFile, WritesFrozenParts) {
  Plan plan = example();
  EXPECT_EQ(to_json(plan).find("frozen"), std::string::npos);
  plan.trained = {false, true, false, 16};
  const std::string text = to_json(plan);
  EXPECT_NE(text.find("  \"frozen\": [\"encoder\",\"llm\"],\n  \"lora_rank\": 16"), std::string::npos)
      << text;
  EXPECT_EQ(parse_plan(text, "p.json"), plan);
}

TEST(PlanFile, WritesTheObjectiveOfAPlanThatHasOne) {
  Plan plan = example();
  for (const Objective objective : all_of<Objective>()) {
    plan.objective = objective;
    const std::string text = to_json(plan);
    EXPECT_NE(text.find(",\n  \"objective\": \"" + std::string(to_string(objective)) + "\"\n}"),
              std::string::npos)
        << text;
    EXPECT_EQ(parse_plan(text, "p.json"), plan);
  }
  EXPECT_EQ(to_json(example()).find("respect_memory"), std::string::npos);
  EXPECT_EQ(to_json(example()).find("objective"), std::string::npos);
  EXPECT_EQ(parse_plan(to_json(example()), "p.json").objective, std::nullopt) << "as files of before";
}

ModulePlan random_module(Random& random, int chunks) {
  ModulePlan module;
  module.tp = 1 + static_cast<int>(random.below(8));
  module.pp = 1 + static_cast<int>(random.below(16));
  module.dp = 1 + static_cast<int>(random.below(64));
  for (int stage = 0; stage < module.pp * chunks; ++stage)
    module.layers.push_back(static_cast<int>(random.below(100)));
  return module;
}

TEST(PlanFile, RandomPlansReadBackUnchanged) {
  Random random(3);
  for (int round = 0; round < 200; ++round) {
    Plan plan;
    plan.planner = "p" + std::to_string(random.below(9));
    plan.model = "dir with \"quotes\"/m.json";
    plan.cluster = "c:" + std::to_string(random.below(9));
    plan.layout = static_cast<Layout>(random.below(kNames<Layout>.size()));
    if (plan.layout == Layout::shared) plan.encoder_share = random.uniform();
    plan.chunks = 1 + static_cast<int>(random.below(3));
    plan.gradient_bucket = {static_cast<std::int64_t>(random.below(3)) * 1'000'000};
    plan.encoder = random_module(random, plan.layout == Layout::uniform ? plan.chunks : 1);
    plan.llm = random_module(random, plan.chunks);
    plan.microbatches = 1 + static_cast<int>(random.below(64));
    plan.gbs = plan.bins() + static_cast<int>(random.below(64));
    plan.order = pipeline_orders()[random.below(pipeline_orders().size())].kind;
    plan.recomputation = static_cast<Recomputation>(random.below(3));
    plan.placement = static_cast<RankOrder>(random.below(kNames<RankOrder>.size()));
    plan.optimizer_states = static_cast<OptimizerStates>(random.below(2));
    plan.reshard = static_cast<Reshard>(random.below(2));
    plan.share_rule = static_cast<ShareRule>(random.below(2));
    if (random.below(2) == 1) plan.encoder_recomputation = static_cast<Recomputation>(random.below(3));
    plan.zero1 = random.below(2) == 1;
    plan.sequence_parallel = random.below(2) == 1;
    plan.trained = {random.below(2) == 1, random.below(2) == 1, random.below(2) == 1,
                    static_cast<int>(random.below(3))};
    plan.respect_memory = random.below(2) == 1;
    if (random.below(2) == 1) plan.objective = all_of<Objective>()[random.below(3)];
    EXPECT_EQ(parse_plan(to_json(plan), "p.json"), plan);
  }
}

TEST(PlanFile, InvalidPlansAreRejected) {
  const std::string good = to_json(example());
  const auto refused = [&](std::string_view from, std::string_view to, const std::string& key,
                           std::initializer_list<std::string_view> words) {
    expect_refused([&] { parse_plan(replaced(good, from, to), "p.json"); }, "p.json: key '" + key + "'",
                   words);
  };
  refused("\"tp\": 4", "\"tp\": 0", "llm.tp", {"found 0"});
  refused("\"tp\": 4", "\"tp\": 4.5", "llm.tp", {"a whole number", "found 4.5"});
  refused("\"tp\": 4", "\"tp\": 1000000", "llm", {"found 6000000"});  // x pp 2 x dp 3
  refused("[16,16]", "[16,16,0]", "llm.layers", {"each of 2 stages", "an array of 3"});
  refused("[16,16]", "[16,-16]", "llm.layers[1]", {"found -16"});
  refused("\"1f1b\"", "\"1f1b\", \"chunks\": 0", "chunks", {"found 0"});
  refused("\"1f1b\"", "\"1f1b\", \"gradient_bucket_bytes\": -1", "gradient_bucket_bytes", {"found -1"});
  refused("\"1f1b\"", "\"1f1b\", \"chunks\": 2", "llm.layers", {"each of 4 stages", "an array of 2"});
  refused("\"disaggregated\"", "\"together\"", "layout", {"disaggregated, uniform, colocated"});
  refused("\"disaggregated\"", "\"shared\"", "encoder_share", {"expected"});
  refused("\"disaggregated\"", "\"shared\", \"encoder_share\": 1.5", "encoder_share",
          {"from 0 to 1", "found 1.5"});
  refused("\"disaggregated\"", "\"disaggregated\", \"encoder_share\": 0.5", "encoder_share",
          {"only in shared plans", "disaggregated"});
  refused("\"1f1b\"", "\"2f2b\"", "schedule", {"gpipe, 1f1b", "2f2b"});
  refused("\"1f1b\"", "\"1f1b\", \"placement\": \"snake\"", "placement",
          {"stage-major, replica-major", "snake"});
  refused("\"1f1b\"", "\"1f1b\", \"objective\": \"speed\"", "objective",
          {"published, bins, makespan", "speed"});
  refused("\"gbs\": 512", "\"gbs\": 47", "gbs", {"at least 48", "16 microbatches x dp 3", "found 47"});
  refused("\"zero1\": true", "\"zero1\": true, \"zero3\": true", "zero3", {"unknown key", "zero1"});
  refused("  \"zero1\": true,\n", "", "zero1", {"found none"});
  refused("\"version\": 1", "\"version\": 2", "version",
          {"written by a newer version: this one reads version 1, found 2"});
  refused("dflop.plan", "dflop.schedule", "schema", {"\"dflop.plan\"", "\"dflop.schedule\""});
}

}  // namespace plan_file_test
}  // namespace dflop
