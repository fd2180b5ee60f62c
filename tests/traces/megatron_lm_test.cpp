#include "traces/files/megatron.hpp"

#include "tests/traces/file_fixtures.hpp"

namespace dflop {
namespace megatron_lm_test {

Plan example() {
  Plan plan;
  plan.planner = "search";
  plan.model = "llava-ov-llama3-8b";
  plan.cluster = "a100-80g:2";
  plan.layout = Layout::uniform;
  plan.gbs = 64;
  plan.encoder = {2, 2, 4, {27, 0}};
  plan.llm = {2, 2, 4, {12, 20}};
  plan.microbatches = 8;
  return plan;
}

ModelSpec model() {
  ModelSpec model;
  model.encoder.heads = model.encoder.kv_heads = 16;
  model.llm.heads = 28;
  model.llm.kv_heads = 4;
  return model;
}

std::string options(const Plan& plan) {
  const std::string text = to_megatron_lm(plan, model()).text;
  return text.substr(text.find("MEGATRON_ARGS=("));
}

std::vector<std::string> unsaid_keys(const Plan& plan) {
  std::vector<std::string> keys;
  for (const std::string& line : to_megatron_lm(plan, model()).unsaid)
    keys.push_back(line.substr(0, line.find(':')));
  return keys;
}

TEST(MegatronLm, WritesThePlansOptions) {
  // 64 samples over 8 microbatches of 4 dp ranks: 2 samples in each.
  EXPECT_EQ(options(example()), R"(MEGATRON_ARGS=(
  --tensor-model-parallel-size 2
  --pipeline-model-parallel-size 2
  --num-layers 32
  --decoder-first-pipeline-num-layers 12
  --decoder-last-pipeline-num-layers 20
  --sequence-parallel
  --micro-batch-size 2 --global-batch-size 64
  --calculate-per-token-loss
  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
  --use-distributed-optimizer
  --bf16
  --accumulate-allreduce-grads-in-fp32
)
)");
  EXPECT_EQ(unsaid_keys(example()), (std::vector<std::string>{"schedule", "padding", "sequence_parallel",
                                                              "recomputation", "clip_gradients"}));
}

TEST(MegatronLm, WritesUnusualOptions) {
  Plan plan = example();
  plan.microbatches = 5;  // 5 x 4 does not divide 64: a "sample" is a microbatch; there are 20
  // With groups of 2, the last would have 1 microbatch, fewer than the 2 stages, which Megatron-LM rejects.
  plan.chunks = 2;
  plan.order = OrderKind::interleaved;
  plan.encoder.layers = {27, 0, 0, 0};
  plan.llm.layers = {0, 11, 10, 11};
  plan.placement = RankOrder::replica_major;
  plan.recomputation = Recomputation::selective;
  plan.optimizer_states = OptimizerStates::bf16;
  plan.gradient_bucket = Bytes{40'000'000};  // in bf16 gradients, 2 bytes each
  plan.sequence_parallel = false;
  plan.clip_gradients = true;
  EXPECT_EQ(options(plan), R"(MEGATRON_ARGS=(
  --tensor-model-parallel-size 2
  --pipeline-model-parallel-size 2
  --num-layers 32
  --pipeline-model-parallel-layout 'E|t*11|t*10|t*11L'
  --microbatch-group-size-per-virtual-pipeline-stage 3
  --use-tp-pp-dp-mapping
  --micro-batch-size 1 --global-batch-size 20
  --calculate-per-token-loss
  --recompute-granularity selective --recompute-modules core_attn
  --use-distributed-optimizer
  --bf16
  --grad-reduce-in-bf16 --use-precision-aware-optimizer --main-grads-dtype bf16
  --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16
  --overlap-grad-reduce --ddp-bucket-size 20000000  # parameters
  --clip-grad 1.0
)
)");
  plan.microbatches = 6;
  EXPECT_EQ(options(plan).find("group-size"), std::string::npos);
  plan.llm.layers = {8, 8, 8, 8};
  EXPECT_NE(options(plan).find("--num-virtual-stages-per-pipeline-rank 2\n"), std::string::npos);
  EXPECT_EQ(pipeline_layout({1, 0, 3}), "Et||t*3L");
}

TEST(MegatronLm, RejectsWhatCannotRunWithAllReasons) {
  Plan plan = example();
  plan.encoder.layers = {15, 12};
  plan.order = OrderKind::zb_h1;
  plan.encoder.tp = plan.llm.tp = 8;
  const Error error = error_of([&] { to_megatron_lm(plan, model(), "p.json"); });
  EXPECT_EQ(error.kind(), ErrorKind::infeasible);
  EXPECT_EQ(error.context(), "p.json");
  EXPECT_EQ(error.message(),
            "megatron-lm cannot run 'tp8 pp2 dp4 mb8 zb-h1': encoder.layers: expected all 27 on the first "
            "stage, where the encoder is, found 15 12; order: expected 1f1b or interleaved, found zb-h1; "
            "llm.tp: expected a divisor of 28 heads, because heads are not padded, found 8");
  plan = example();
  plan.chunks = 2;
  plan.order = OrderKind::interleaved;
  plan.microbatches = 1;
  plan.encoder.layers = {27, 0, 0, 0};
  plan.llm.layers = {0, 11, 10, 11};
  EXPECT_NE(error_of([&] { to_megatron_lm(plan, model(), "p.json"); })
                .message()
                .find("microbatches: expected at least llm.pp 2 for interleaved, found 1"),
            std::string::npos);
  plan = example();
  plan.chunks = 2;
  plan.order = OrderKind::interleaved;
  plan.encoder.pp = plan.llm.pp = 1;
  plan.encoder.layers = {27, 0};
  plan.llm.layers = {16, 16};
  // A single rank runs its chunks one after the other, like all of its layers.
  const std::string one_rank = to_megatron_lm(plan, model()).text;
  EXPECT_NE(one_rank.find("--num-layers 32\n"), std::string::npos) << one_rank;
  EXPECT_EQ(one_rank.find("virtual"), std::string::npos) << one_rank;
  EXPECT_NE(one_rank.find("its chunks become one"), std::string::npos) << one_rank;
  plan = example();
  plan.layout = Layout::disaggregated;
  const Error other = error_of([&] { to_megatron_lm(plan, model()); });
  EXPECT_NE(other.message().find("found a disaggregated plan (--to megatron-mimo)"), std::string::npos);
}

}  // namespace megatron_lm_test
}  // namespace dflop
