// For every plan, loss and gradients of a global batch equal the values of one rank that has the whole batch.
#include <gtest/gtest.h>

#include "tests/backend/run/live_model.hpp"

namespace dflop {
namespace semantics_test {

using testing::disaggregated_plan;
using testing::live_samples;
using testing::LiveRun;
using testing::shared_plan;
using testing::uniform_plan;
using Kind = ParameterStore::Kind;

struct NamedPlan {
  std::string name;
  Plan plan;
};

Plan with(Plan plan, OrderKind order, int chunks = 1) {
  plan.order = order;
  plan.chunks = chunks;
  if (chunks > 1) plan.llm.layers = split_layers(4, plan.llm.pp * chunks);
  return plan;
}

Plan with(Plan plan, Recomputation recomputation) {
  plan.recomputation = recomputation;
  return plan;
}

Plan with_sequence_parallelism(Plan plan) {
  plan.sequence_parallel = true;
  return plan;
}

std::vector<NamedPlan> plans() {
  const Plan pipeline = disaggregated_plan({1, 1, 1, {}}, {1, 2, 1, {}}, 4);
  Plan buckets = disaggregated_plan({1, 1, 2, {}}, {1, 1, 2, {}}, 2);
  buckets.gradient_bucket = Bytes{4096};
  Plan no_zero = uniform_plan(1, 1, 2, 2);
  no_zero.zero1 = false;
  return {
      {"dp2", uniform_plan(1, 1, 2, 2)},
      {"dp2_without_zero1", no_zero},
      {"tp2", uniform_plan(2, 1, 1, 2)},
      {"pp3", uniform_plan(1, 3, 1, 4)},
      {"tp2_pp2_dp2", uniform_plan(2, 2, 2, 3)},
      {"a_sample_a_microbatch", uniform_plan(1, 1, 2, 6)},
      {"encoder_and_llm_apart", disaggregated_plan({1, 1, 1, {}}, {1, 1, 1, {}}, 3)},
      {"encoder_dp3_llm_dp2", disaggregated_plan({1, 1, 3, {}}, {1, 1, 2, {}}, 3)},
      {"encoder_tp2_pp2_llm_tp1_pp2_dp2", disaggregated_plan({2, 2, 1, {}}, {1, 2, 2, {}}, 3)},
      {"encoder_dp2_llm_tp2", disaggregated_plan({1, 1, 2, {}}, {2, 1, 1, {}}, 3)},
      {"shared", shared_plan({1, 1, 1, {}}, {1, 1, 1, {}}, 0.5, 3)},
      {"shared_encoder_dp2_llm_tp2", shared_plan({1, 1, 2, {}}, {2, 1, 1, {}}, 0.3, 3)},
      {"shared_encoder_tp2_llm_pp2_zb_h1",
       with(shared_plan({2, 1, 1, {}}, {1, 2, 1, {}}, 0.75, 4), OrderKind::zb_h1)},
      {"uneven_layers",
       [] {
         Plan plan = disaggregated_plan({1, 2, 1, {}}, {1, 2, 1, {}}, 3);
         plan.encoder.layers = {1, 2};
         plan.llm.layers = {3, 1};
         return plan;
       }()},
      {"full_recomputation", with(pipeline, Recomputation::full)},
      {"selective_recomputation", with(pipeline, Recomputation::selective)},
      {"gpipe", with(pipeline, OrderKind::gpipe)},
      {"interleaved", with(pipeline, OrderKind::interleaved, 2)},
      {"zb_h1", with(pipeline, OrderKind::zb_h1)},
      {"zb_h1_full_recomputation", with(with(pipeline, OrderKind::zb_h1), Recomputation::full)},
      {"zb_h2", with(pipeline, OrderKind::zb_h2)},
      {"gradient_buckets", buckets},
      {"sequence_parallel_tp2", with_sequence_parallelism(uniform_plan(2, 1, 1, 2))},
      {"sequence_parallel_tp2_pp2_dp2", with_sequence_parallelism(uniform_plan(2, 2, 2, 3))},
      {"sequence_parallel_encoder_tp4_llm_tp2",
       with_sequence_parallelism(disaggregated_plan({4, 1, 1, {}}, {2, 2, 1, {}}, 3))},
      {"sequence_parallel_encoder_tp2_pp2_dp2_llm_tp2_full_recomputation",
       with_sequence_parallelism(
           with(disaggregated_plan({2, 2, 2, {}}, {2, 1, 1, {}}, 3), Recomputation::full))},
      {"sequence_parallel_zb_h1",
       with_sequence_parallelism(
           with(disaggregated_plan({2, 1, 1, {}}, {2, 2, 1, {}}, 4), OrderKind::zb_h1))},
  };
}

class LiveSemantics : public ::testing::TestWithParam<NamedPlan> {};

/// Compares a plan with one rank that has the whole batch in one microbatch.
void expect_equal(const Plan& plan, DType dtype, double tolerance) {
  const std::vector<Sample> samples = live_samples(12, 5);
  LiveRun reference(uniform_plan(1, 1, 1, 1), samples, dtype);
  LiveRun run(plan, samples, dtype);
  const double loss = reference.step(false).loss;
  EXPECT_GT(loss, 1);
  EXPECT_NEAR(run.step(false).loss, loss, tolerance * loss);
  const WholeTensors expected = reference.executor->read(Kind::gradient);
  const WholeTensors found = run.executor->read(Kind::gradient);
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_EQ(found.count(name), 1U) << name;
    EXPECT_LT(testing::distance(found.at(name), tensor), tolerance) << name;
  }
}

TEST_P(LiveSemantics, InDoublePrecision) {
  expect_equal(GetParam().plan, DType::f64, 1e-12);
}

TEST_P(LiveSemantics, InSinglePrecision) {
  expect_equal(GetParam().plan, DType::f32, 1e-5);
}

/// After three steps, the parameters are still the same. This covers optimizer shards and reductions.
TEST_P(LiveSemantics, OverSteps) {
  const std::vector<Sample> samples = live_samples(12, 5);
  LiveRun reference(uniform_plan(1, 1, 1, 1), samples, DType::f64);
  LiveRun run(GetParam().plan, samples, DType::f64);
  for (int step = 1; step <= 3; ++step) {
    const double loss = reference.step(true, step).loss;
    EXPECT_NEAR(run.step(true, step).loss, loss, 1e-9 * loss) << "step " << step;
  }
  const WholeTensors expected = reference.executor->read(Kind::weight);
  const WholeTensors found = run.executor->read(Kind::weight);
  for (const auto& [name, tensor] : expected) {
    EXPECT_LT(testing::distance(found.at(name), tensor), 1e-7) << name;
  }
}

TEST(UnequalShares, StillTrainOneModel) {
  ModelSpec model = testing::uneven_model();
  const std::vector<Sample> samples = live_samples(12, 5);
  for (const std::int64_t logits : {0, 100}) {
    model.llm.logits_at_once = logits;
    const auto run = [&](const Plan& plan) { return LiveRun(plan, model, samples, DType::f64); };
    LiveRun reference = run(uniform_plan(1, 1, 1, 1));
    const double loss = reference.step(true).loss;
    const WholeTensors gradients = reference.executor->read(Kind::gradient);
    const WholeTensors weights = reference.executor->read(Kind::weight);
    for (const Plan& plan :
         {uniform_plan(2, 1, 1, 2), with_sequence_parallelism(uniform_plan(2, 2, 2, 2)),
          with_sequence_parallelism(disaggregated_plan({4, 1, 1, {}}, {2, 1, 1, {}}, 3))}) {
      SCOPED_TRACE(describe(plan));
      LiveRun split = run(plan);
      EXPECT_NEAR(split.step(true).loss, loss, 1e-12 * loss);
      for (const auto& [name, tensor] : split.executor->read(Kind::gradient))
        EXPECT_LT(testing::distance(tensor, gradients.at(name)), 1e-11) << name;
      for (const auto& [name, tensor] : split.executor->read(Kind::weight))
        EXPECT_LT(testing::distance(tensor, weights.at(name)), 1e-7) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, LiveSemantics, ::testing::ValuesIn(plans()),
                         [](const auto& param) { return param.param.name; });

}  // namespace semantics_test
}  // namespace dflop
