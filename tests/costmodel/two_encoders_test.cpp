// A model with two encoders costs as much as its parts.
#include <gtest/gtest.h>

#include "core/program/lowering.hpp"
#include "core/support/random.hpp"
#include "costmodel/analytic/analytic.hpp"
#include "costmodel/analytic/flops.hpp"
#include "tests/costmodel/fixtures.hpp"
#include "tests/rounds.hpp"

namespace dflop {
namespace two_encoders_test {

constexpr Op kOps[] = {Op::forward, Op::backward, Op::backward_input, Op::backward_weight};

/// LLaVA with Llama 3 8B, and a smaller second encoder that merges pairs of rows.
ModelSpec hearing_model() {
  ModelSpec model = fixtures::llava_llama3_8b();
  model.second = SecondEncoder{{"ears", 8, 640, 2560, 10, 10, 64, false, false, 0}, {{640, 4096}, 2}};
  return model;
}

ModelSpec without_second(ModelSpec model) {
  model.second.reset();
  return model;
}

Stage stage_of(int encoder_layers, int llm_layers, bool connector, int tp) {
  Stage stage;
  stage.encoder_layers = encoder_layers;
  stage.llm_layers = llm_layers;
  stage.connector = connector;
  stage.embedding = llm_layers > 0;
  stage.tp = tp;
  stage.dp = 2;
  return stage;
}

/// Counts far above zero, or none.
Workload random_work(Random& random, bool second) {
  const auto count = [&] { return static_cast<std::int64_t>(1000 + random.below(100'000)); };
  Workload work;
  if (random.below(3) > 0) work = {8, count(), 100 * count()};
  if (second && random.below(3) > 0) work.second = {8, count(), 100 * count()};
  return work;
}

TEST(TwoEncoders, StageCostsAddUpOnTheStageWithTheConnectors) {
  const ModelSpec model = hearing_model();
  const AnalyticCostModel cost(model, fixtures::a100_cluster());
  const AnalyticCostModel first(without_second(model), fixtures::a100_cluster());
  const AnalyticCostModel second(model.of_second(), fixtures::a100_cluster());
  Random random(1);
  for (int i = 0; i < testing::rounds(200); ++i) {
    const Work work{random_work(random, true), random_work(random, false)};
    Stage stage = stage_of(static_cast<int>(random.below(27)) + 1, static_cast<int>(random.below(3)),
                           random.below(2) == 0, 1 << random.below(3));
    stage.recomputation = static_cast<Recomputation>(random.below(3));
    const Stage own = stage_of_second(stage, model);
    const bool hears = stage.connector && work.encoder.second.tokens > 0;
    Bytes kept = first.activation(stage, work);
    if (hears) kept += second.activation(own, work.of_second());
    EXPECT_EQ(cost.activation(stage, work), kept);
    for (const Op op : kOps) {
      Seconds sum = first.compute(op, stage, work);
      if (hears) sum += second.compute(op, own, work.of_second());
      EXPECT_NEAR(cost.compute(op, stage, work).count(), sum.count(), 1e-12 * sum.count());
      EXPECT_GE(cost.workspace(op, stage, work), first.workspace(op, stage, work));
      if (hears) EXPECT_GE(cost.workspace(op, stage, work), second.workspace(op, own, work.of_second()));
      if (hears && op == Op::backward_input) {  // the second encoder's rebuilt layers stay
        const Bytes rebuilt =
            second.split_activation(own, work.of_second()) - second.activation(own, work.of_second());
        EXPECT_GE(cost.workspace(op, stage, work), first.workspace(op, stage, work) + rebuilt);
      }
    }
  }
}

/// The floor is convex between any two works with the same empty modules. A work of only one encoder and one
/// of both have the same empty modules.
TEST(TwoEncoders, FloorIsConvexAlsoIfAnEncoderHasNoWork) {
  const ModelSpec model = hearing_model();
  const AnalyticCostModel cost(model, fixtures::a100_cluster());
  Random random(2);
  for (int i = 0; i < testing::rounds(300); ++i) {
    const Stage stage = stage_of(27, 0, true, 1);
    const Workload a = random_work(random, true);
    const Workload b = random_work(random, true);
    if (a.empty() || b.empty()) continue;
    Workload middle = a;
    middle += b;
    for (std::int64_t* count :
         {&middle.sequences, &middle.tokens, &middle.attention_pairs, &middle.second.sequences,
          &middle.second.tokens, &middle.second.attention_pairs})
      *count /= 2;
    for (const Op op : kOps) {
      const auto floor = [&](const Workload& work) {
        return cost.convex_floor(op, stage, {work, {}}).value().count();
      };
      EXPECT_LE(floor(a), cost.compute(op, stage, {a, {}}).count() * (1 + 1e-12));
      EXPECT_GE(floor(a), 0);
      EXPECT_LE(floor(middle), (floor(a) + floor(b)) / 2 * (1 + 1e-9));
    }
  }
}

TEST(TwoEncoders, ParametersAndFlopAddUp) {
  const ModelSpec model = hearing_model();
  Stage stage = stage_of(27, 0, true, 2);
  // 8 layers of 2 * 640 * 640 * 2 + 2 * 640 * 2560 weights, and a connector of 640 * 4096, over tp 2.
  const std::int64_t second = (8 * (4 * 640 * 640 + 2 * 640 * 2560) + 640 * 4096) / 2;
  EXPECT_EQ(stage_parameters(stage, model), stage_parameters(stage, without_second(model)) + second);
  EXPECT_EQ(trained_parameters(stage, model), stage_parameters(stage, model));
  stage.trained.connector = false;
  EXPECT_EQ(trained_parameters(stage, model),
            trained_parameters(stage, without_second(model)) + second - 640 * 4096 / 2);
  stage.connector = false;
  EXPECT_EQ(stage_parameters(stage, model), stage_parameters(stage, without_second(model)));
  const Workload both{1, 729, 729 * 729, 0, {2, 200, 20'000}};
  const Workload llm{1, 500, 250'000};
  Workload only_first = both;
  only_first.second = {};
  EXPECT_DOUBLE_EQ(model_flop(model, both, llm).count,
                   model_flop(without_second(model), only_first, llm).count +
                       model_flop(model.of_second(), both.of_second(), {}).count);
  // Forward and backward of 200 tokens: 6 FLOP a weight, 12 * 640 * 20000 a layer for attention; 100 merged
  // tokens go through the connector.
  const double expected =
      8 * (6.0 * 200 * (4 * 640 * 640 + 2 * 640 * 2560) + 12.0 * 640 * 20'000) + 6.0 * 100 * 640 * 4096;
  EXPECT_DOUBLE_EQ(model_flop(model.of_second(), both.of_second(), {}).count, expected);
}

}  // namespace two_encoders_test
}  // namespace dflop
