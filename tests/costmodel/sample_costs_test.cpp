#include "costmodel/sample_costs.hpp"

#include <gtest/gtest.h>

#include "core/support/random.hpp"
#include "costmodel/analytic/analytic.hpp"
#include "tests/costmodel/fixtures.hpp"

namespace dflop {
namespace sample_costs_test {

/// forward = layers * (fixed + rate * tokens), backward twice that.
class LinearCost final : public CostModel {
 public:
  LinearCost(double fixed, double rate) : fixed_(fixed), rate_(rate) {}

  Seconds compute(Op op, const Stage& stage, const Work& work) const override {
    const double passes = op == Op::forward ? 1 : 2;
    return Seconds(passes *
                   (module(stage.encoder_layers, work.encoder) + module(stage.llm_layers, work.llm)));
  }
  Seconds message(const Message&, const Program&) const override { return Seconds(0); }
  Seconds all_reduce(const Collective&, const Program&) const override { return Seconds(0); }
  Seconds optimizer_step(const Stage&) const override { return Seconds(0); }
  ModelState model_state(const Stage&) const override { return {}; }
  Bytes activation(const Stage&, const Work&) const override { return {}; }
  Bytes workspace(Op, const Stage&, const Work&) const override { return {}; }

 private:
  double module(int layers, const Workload& load) const {
    return load.empty() ? 0 : layers * (fixed_ + rate_ * static_cast<double>(load.tokens));
  }

  double fixed_;
  double rate_;
};

Sample sample_of(std::int64_t tiles, std::int64_t llm_tokens) {
  Sample sample;
  if (tiles > 0) sample.encoder_sequences = {{tiles, 10, 100}};
  sample.llm_tokens = llm_tokens;
  return sample;
}

/// An encoder of 2 layers on one stage with dp 2; LLM stages of 1 and 2 layers with dp 4.
Plan disaggregated_plan() {
  Plan plan;
  plan.encoder = {1, 1, 2, {2}};
  plan.llm = {1, 2, 4, {1, 2}};
  plan.microbatches = 2;
  return plan;
}

const std::vector<Sample> kSamples = {sample_of(3, 50), sample_of(0, 20), sample_of(1, 10), sample_of(1, 10),
                                      sample_of(2, 40), sample_of(0, 30), sample_of(5, 90), sample_of(4, 60)};

TEST(SampleCosts, DisaggregatedByHand) {
  // Forward and backward count as three passes. The slowest LLM stage has 2 layers, and so has the only
  // encoder stage. The fixed 7 s belong to the base load and not to what a sample adds. Sample 0: LLM 3 * 2 *
  // 0.5 * 50 = 150; encoder 3 * 2 * 0.5 * 30 = 90, times 4 / 2. Sample 1 has no encoder work.
  const SampleCosts costs =
      sample_costs(LinearCost(7, 0.5), disaggregated_plan(), fixtures::small_model(), kSamples);
  ASSERT_EQ(costs.llm_s.size(), kSamples.size());
  ASSERT_EQ(costs.encoder_s.size(), kSamples.size());
  EXPECT_NEAR(costs.llm_s[0], 150, 1e-9);
  EXPECT_NEAR(costs.encoder_s[0], 180, 1e-9);
  EXPECT_NEAR(costs.llm_s[1], 60, 1e-9);
  EXPECT_EQ(costs.encoder_s[1], 0);
}

TEST(SampleCosts, StageOfAUniformPlanAddsBothModules) {
  // Stages: encoder 2 + LLM 1 layers, then LLM 2. Sample 0 adds 3 * (2 * 0.5 * 30 + 1 * 0.5 * 50) = 165 to
  // the first and 3 * 2 * 0.5 * 50 = 150 to the second; sample 1, text of 20, adds 30 and 60.
  Plan plan = disaggregated_plan();
  plan.layout = Layout::uniform;
  plan.encoder = {1, 2, 4, {2, 0}};
  const SampleCosts costs = sample_costs(LinearCost(7, 0.5), plan, fixtures::small_model(), kSamples);
  EXPECT_NEAR(costs.encoder_s[0], 165, 1e-9);
  EXPECT_NEAR(costs.llm_s[0], 150, 1e-9);
  EXPECT_NEAR(costs.encoder_s[1], 30, 1e-9);
  EXPECT_NEAR(costs.llm_s[1], 60, 1e-9);
}

TEST(SampleCosts, OneStageHasOneLoad) {
  // Encoder 2 and LLM 3 layers on one stage: sample 0 adds 3 * (2 * 0.5 * 30 + 3 * 0.5 * 50) = 315.
  Plan plan = disaggregated_plan();
  plan.layout = Layout::uniform;
  plan.encoder = {1, 1, 4, {2}};
  plan.llm = {1, 1, 4, {3}};
  const SampleCosts costs = sample_costs(LinearCost(7, 0.5), plan, fixtures::small_model(), kSamples);
  EXPECT_NEAR(costs.encoder_s[0], 315, 1e-9);
  EXPECT_EQ(costs.encoder_s, costs.llm_s);
}

TEST(SampleCosts, RankCarriesAllItsChunks) {
  // LLM layers 1, 2, 3, 1 on ranks 0, 1, 0, 1: rank 0 carries 4. Sample 0 adds 3 * 4 * 0.5 * 50 = 300.
  Plan plan = disaggregated_plan();
  plan.order = OrderKind::interleaved;
  plan.chunks = 2;
  plan.llm.layers = {1, 2, 3, 1};
  const SampleCosts costs = sample_costs(LinearCost(7, 0.5), plan, fixtures::small_model(), kSamples);
  EXPECT_NEAR(costs.llm_s[0], 300, 1e-9);
  EXPECT_NEAR(costs.encoder_s[0], 180, 1e-9);  // as without chunks
  plan.order = OrderKind::zb_v;                // ranks 0, 1, 1, 0: rank 1 carries 5
  EXPECT_NEAR(sample_costs(LinearCost(7, 0.5), plan, fixtures::small_model(), kSamples).llm_s[0], 375, 1e-9);
}

TEST(SampleCosts, ColocatedRankEncodesOneMicrobatchInPp) {
  // An encoder of 2 layers alongside LLM stages of 1 and 2: sample 0 adds 3 * 2 * 0.5 * 30 / 2 = 45 and 150.
  Plan plan = disaggregated_plan();
  plan.layout = Layout::colocated;
  plan.order = OrderKind::encoder_in_bubbles;
  plan.encoder = {1, 1, 8, {2}};
  const SampleCosts costs = sample_costs(LinearCost(7, 0.5), plan, fixtures::small_model(), kSamples);
  EXPECT_NEAR(costs.llm_s[0], 195, 1e-9);
  EXPECT_EQ(costs.encoder_s, costs.llm_s);
  EXPECT_NEAR(costs.llm_s[1], 60, 1e-9);
}

TEST(SampleCosts, WorkIsNeverFree) {
  const SampleCosts costs =
      sample_costs(LinearCost(7, 0), disaggregated_plan(), fixtures::small_model(), kSamples);
  EXPECT_EQ(costs.llm_s[0], 1e-9);
  EXPECT_EQ(costs.encoder_s[0], 2e-9);
  EXPECT_EQ(costs.encoder_s[1], 0);
}

TEST(SampleCosts, TextOnlyBatchHasNoEncoderCost) {
  const std::vector<Sample> text(8, sample_of(0, 30));
  const SampleCosts costs =
      sample_costs(LinearCost(7, 0.5), disaggregated_plan(), fixtures::small_model(), text);
  for (const double e : costs.encoder_s) EXPECT_EQ(e, 0);
  for (const double l : costs.llm_s) EXPECT_NEAR(l, 90, 1e-9);
}

TEST(SampleCosts, BinCostsExceedTheirSamplesByTheFixedPartOnly) {
  // By the analytic model, three passes over a bin of mean size take at least what its samples add, and a
  // single small sample takes longer than what it adds to a bin.
  const ModelSpec model = fixtures::llava_llama3_8b();
  const AnalyticCostModel cost(model, fixtures::a100_cluster());
  Plan plan = disaggregated_plan();
  plan.encoder.layers = {27};
  plan.llm.layers = {16, 16};
  Random random(11);
  std::vector<Sample> samples;
  for (int i = 0; i < 128; ++i) {
    Sample sample = sample_of(0, 50 + static_cast<std::int64_t>(random.below(3000)));
    sample.encoder_sequences = {{1 + static_cast<std::int64_t>(random.below(9)), 729, 729 * 729}};
    samples.push_back(sample);
  }
  const SampleCosts costs = sample_costs(cost, plan, model, samples);
  Stage stage;  // the second LLM stage, slower because of the head
  stage.llm_layers = 16;
  stage.head = true;
  stage.dp = 4;
  Workload total;
  double added = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const Work alone{{}, samples[i].llm()};
    EXPECT_GT((cost.compute(Op::forward, stage, alone) + cost.compute(Op::backward, stage, alone)).count(),
              costs.llm_s[i]);
    total += samples[i].llm();
    added += costs.llm_s[i];
  }
  const Work mean{{}, {total.sequences / 8, total.tokens / 8, total.attention_pairs / 8}};
  const double bin =
      (cost.compute(Op::forward, stage, mean) + cost.compute(Op::backward, stage, mean)).count();
  EXPECT_GT(bin, added / 8);
  EXPECT_LT(bin, added / 8 * 1.1);
}

}  // namespace sample_costs_test
}  // namespace dflop
