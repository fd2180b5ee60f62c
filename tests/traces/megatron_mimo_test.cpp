#include "traces/files/megatron.hpp"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <tuple>

#include "core/support/random.hpp"
#include "tests/traces/file_fixtures.hpp"

namespace dflop {
namespace megatron_mimo_test {

Plan example() {
  Plan plan;
  plan.planner = "search";
  plan.model = "llava-ov-llama3-8b";
  plan.cluster = "a100-80g:2";
  plan.gbs = 64;
  plan.encoder = {1, 1, 2, {27}};
  plan.llm = {1, 2, 2, {17, 15}};
  plan.microbatches = 8;
  plan.share_rule = ShareRule::count;
  return plan;
}

/// Returns a model whose numbers of heads are divisible by many tp's.
ModelSpec model() {
  ModelSpec model;
  model.encoder.heads = model.encoder.kv_heads = 48;
  model.llm.heads = 32;
  model.llm.kv_heads = 8;
  return model;
}

void expect_text(const Plan& plan, const std::string& part) {
  const std::string text = to_megatron_mimo(plan, model()).text;
  EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in:\n" << text;
}

/// Returns the first words of what the form cannot express, such as "schedule".
std::vector<std::string> unsaid_keys(const Plan& plan) {
  std::vector<std::string> keys;
  for (const std::string& line : to_megatron_mimo(plan, model()).unsaid)
    keys.push_back(line.substr(0, line.find(':')));
  return keys;
}

TEST(MegatronMimo, WritesTheParallelismOfBothModules) {
  Plan plan = example();
  plan.encoder = {2, 1, 4, {27}};
  plan.llm = {4, 3, 2, {11, 12, 9}};
  // The encoder's 2 x 1 x 4 ranks come first; 4 x 3 x 2 follow. 64 samples in 8 microbatches are 8 in each.
  expect_text(
      plan,
      "on 32 ranks:\n#   --component images=tp=2,pp=1,dp=4,rank_offset=0 "
      "--component language=tp=4,pp=3,dp=2,rank_offset=8 --micro-batch-size 8 --global-batch-size 64\n");
  expect_text(plan, R"(
WORLD_SIZE = 32
NUM_MICROBATCHES = 8  # global over micro batch size

PARALLELISM = MegatronMIMOParallelismConfig(
    module_parallelisms={
        "images": ModuleParallelismConfig(
            tensor_model_parallel_size=2,
            pipeline_model_parallel_size=1,
            data_parallel_size=4,
            rank_offset=0,
        ),
        "language": ModuleParallelismConfig(
            tensor_model_parallel_size=4,
            pipeline_model_parallel_size=3,
            data_parallel_size=2,
            rank_offset=8,
        ),
    },
)
)");
  expect_text(plan, R"(
    "language": dict(
        num_layers=32,
        tensor_model_parallel_size=4,
        pipeline_model_parallel_size=3,
        num_layers_in_first_pipeline_stage=11,
        num_layers_in_last_pipeline_stage=9,
        pipeline_dtype=torch.bfloat16,
        sequence_parallel=True,
        recompute_granularity="full",
        recompute_method="uniform",
        recompute_num_layers=1,
)");
}

TEST(MegatronMimo, WritesRecomputationAndOptimizer) {
  Plan plan = example();
  plan.recomputation = Recomputation::selective;
  expect_text(plan, "recompute_granularity=\"selective\",\n        recompute_modules=[\"core_attn\"],");
  plan.encoder_recomputation = Recomputation::full;
  expect_text(plan, "recompute_granularity=\"full\"");  // the encoder's; the LLM's stays selective
  expect_text(plan, "recompute_granularity=\"selective\"");
  plan.encoder_recomputation.reset();
  plan.recomputation = Recomputation::none;
  expect_text(plan, "recompute_granularity=None,");
  expect_text(
      plan, "grad_reduce_in_fp32=True,\n    average_in_collective=False,\n    overlap_grad_reduce=False,\n)");
  // 1000 bytes are 250 gradients in fp32, and 500 in bf16.
  plan.gradient_bucket = {1000};
  expect_text(plan, "overlap_grad_reduce=True,\n    bucket_size=250,");
  plan.optimizer_states = OptimizerStates::bf16;
  expect_text(plan, "overlap_grad_reduce=True,\n    bucket_size=500,");
  expect_text(plan, "    exp_avg_dtype=torch.bfloat16,");
  plan.zero1 = false;  // only the distributed optimizer keeps bf16
  expect_text(plan, "OPTIMIZER = dict(\n    use_distributed_optimizer=False,\n)");
  expect_text(plan, "grad_reduce_in_fp32=True");
}

TEST(MegatronMimo, ListsUnsupportedFeatures) {
  // No plan's form expresses which rank gets which sample and what padding costs.
  const std::vector<std::string> always = {"schedule", "padding"};
  EXPECT_EQ(unsaid_keys(example()), always);

  const std::vector<std::pair<std::string, std::function<void(Plan&)>>> changes = {
      {"order", [](Plan& p) { p.order = OrderKind::gpipe; }},
      {"chunks",
       [](Plan& p) {
         p.chunks = 2, p.llm.layers = {8, 8, 8, 8};
       }},
      {"llm.layers",
       [](Plan& p) {
         p.llm = {1, 4, 2, {9, 8, 7, 8}};
       }},
      {"encoder.layers",
       [](Plan& p) {
         p.encoder = {1, 4, 2, {7, 7, 6, 7}};
       }},
      {"reshard", [](Plan& p) { p.reshard = Reshard::hub; }},
      {"reshard", [](Plan& p) { p.llm.tp = 2; }},
      {"placement", [](Plan& p) { p.placement = RankOrder::replica_major; }},
      {"optimizer_states", [](Plan& p) { p.optimizer_states = OptimizerStates::bf16; }},
      {"frozen", [](Plan& p) { p.trained.encoder = false; }},
      {"samples of unlike encoder tokens", [](Plan& p) { p.encoder.dp = 4; }},
      {"share_rule", [](Plan& p) { p.share_rule = ShareRule::cost; }},
  };
  for (const auto& change : changes) {
    Plan plan = example();
    change.second(plan);
    std::vector<std::string> expected = always;
    expected.push_back(change.first);
    EXPECT_EQ(unsaid_keys(plan), expected);
  }
  const ExportedPlan exported = to_megatron_mimo(example(), model());
  for (const std::string& line : exported.unsaid)
    EXPECT_NE(exported.text.find("\n# * " + line + "\n"), std::string::npos) << line;
}

TEST(MegatronMimo, OmitsDifferencesWithoutEffect) {
  // If encoder and LLM have one stage and one dp rank each, both placements give the same ranks. A rank with
  // one sample per microbatch has no unequal samples.
  Plan plan = example();
  plan.encoder = {1, 1, 1, {27}};
  plan.llm = {1, 1, 1, {32}};
  plan.placement = RankOrder::replica_major;
  EXPECT_EQ(unsaid_keys(plan), (std::vector<std::string>{"schedule", "padding"}));
  plan.encoder.dp = 8;
  EXPECT_EQ(unsaid_keys(plan), (std::vector<std::string>{"schedule", "padding"}));
  plan.encoder.dp = 1;  // all samples are on one rank
  plan.share_rule = ShareRule::cost;
  EXPECT_EQ(unsaid_keys(plan), (std::vector<std::string>{"schedule", "padding"}));
}

TEST(MegatronMimo, RejectsWhatCannotRunWithAllReasons) {
  const auto refused = [](const Plan& plan) {
    const Error error = error_of([&] { to_megatron_mimo(plan, model(), "p.json"); });
    EXPECT_EQ(error.kind(), ErrorKind::infeasible);
    EXPECT_EQ(error.context(), "p.json");
    return error.message();
  };
  const auto expect = [&](const Plan& plan, const std::string& reason) {
    const std::string message = refused(plan);
    EXPECT_NE(message.find(reason), std::string::npos) << "no '" << reason << "' in: " << message;
  };
  Plan plan = example();
  plan.layout = Layout::uniform;
  expect(plan,
         "layout: expected a disaggregated plan, because modules have their own ranks, found a uniform "
         "plan (--to megatron-lm)");
  plan = example();
  plan.encoder.tp = 32;
  expect(plan, "encoder.tp: expected a divisor of 48 heads, because heads are not padded, found 32");
  plan = example();
  plan.encoder.tp = 6;
  plan.llm.dp = 3;
  expect(plan,
         "'E tp6 pp1 dp2 | L tp1 pp2 dp3 mb8': encoder.tp: expected a power of 2, found 6; "
         "encoder.dp: expected a divisor or a multiple of llm.dp 3, found 2");
  // 8 microbatches of at least 2 samples, one for each dp rank: a multiple of 16.
  plan = example();
  plan.gbs = 40;
  expect(plan, "gbs: expected a multiple of 16 (8 microbatches x dp 2)");
  expect(plan, "found 40; the nearest are 32 and 48");
  plan.encoder.dp = 4;  // 8 x 4
  plan.gbs = 31;
  expect(plan, "found 31; the nearest is 32");
}

TEST(MegatronMimo, ANameIsQuoted) {
  Plan plan = example();
  plan.model = "m\nimport os";
  expect_text(plan, "model \"m\\nimport os\", cluster");
}

TEST(MegatronMimo, LayersAreTheNearestWithAnEqualMiddle) {
  EXPECT_EQ(with_equal_middle({32}), (std::vector<int>{32}));
  EXPECT_EQ(with_equal_middle({1, 9, 4}), (std::vector<int>{1, 9, 4}));
  EXPECT_EQ(with_equal_middle({9, 9, 8, 8}), (std::vector<int>{9, 9, 9, 7}));
  Random random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<int> layers(4 + random.below(3));
    for (int& count : layers) count = 1 + static_cast<int>(random.below(7));
    const int stages = static_cast<int>(layers.size());
    const int all = std::accumulate(layers.begin(), layers.end(), 0);
    // All splits with equal middle stages, one after the other.
    using Rank = std::tuple<int, int, int>;
    Rank least{1 << 20, 0, 0};
    const auto rank_of = [&](const std::vector<int>& split) {
      int off = 0;
      for (int s = 0; s < stages; ++s) off += std::abs(split[s] - layers[s]);
      return Rank{off, *std::max_element(split.begin(), split.end()), split.back()};
    };
    for (int middle = 1; middle < all; ++middle) {
      for (int first = 1; first < all; ++first) {
        std::vector<int> split(stages, middle);
        split.front() = first;
        split.back() = all - first - (stages - 2) * middle;
        if (split.back() >= 1) least = std::min(least, rank_of(split));
      }
    }
    const std::vector<int> found = with_equal_middle(layers);
    ASSERT_EQ(std::accumulate(found.begin(), found.end(), 0), all);
    EXPECT_EQ(rank_of(found), least);
    EXPECT_TRUE(
        std::all_of(found.begin() + 1, found.end() - 1, [&](int c) { return c == found[1] && c >= 1; }));
  }
}

}  // namespace megatron_mimo_test
}  // namespace dflop
