#include "solver/plan_problem/pipeline.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/iteration/iteration.hpp"
#include "costmodel/analytic/analytic.hpp"
#include "costmodel/correction/corrected.hpp"
#include "sim/engine.hpp"
#include "solver/makespan/bound.hpp"
#include "tests/core/fixtures.hpp"
#include "tests/core/random_plan.hpp"
#include "tests/costmodel/fixtures.hpp"

namespace dflop::testing {
namespace plan_pipeline_test {

/// A GPU on which passes of the tiny model take several microseconds, partly due to launches, and so do
/// messages.
ClusterSpec slow_cluster() {
  ClusterSpec cluster = tiny_cluster(64, 8);
  cluster.gpu = fixtures::a100_cluster().gpu;
  cluster.software = fixtures::a100_software();
  cluster.gpu.peak_flop_per_s = 1e12;
  cluster.gpu.memory_bandwidth_bytes_per_s = 1e11;
  cluster.gpu.memory = Bytes{std::int64_t{1} << 36};
  cluster.intra_node = {Seconds(1e-6), 1e10};
  cluster.inter_node = {Seconds(3e-6), 2e9};
  return cluster;
}

struct SimulatedPlan {
  Plan plan;
  Batch batch;
  PlanPipeline pipeline;
  double simulated_s = 0;
  LoadTable loads;
  LoadTable floor_loads;
};

/// Calls check(run) for costs of random plans of every schedule and layout, batches with and without samples
/// that have nothing to encode, and random assignments.
template <typename Check>
void for_each_run(const CostModel& cost, const Check& check) {
  Random random(7);
  Random trained(8);
  const ClusterSpec cluster = slow_cluster();
  for (const OrderKind order : all_order_kinds()) {
    for (const Layout layout : all_of<Layout>()) {
      if (!fits(traits(order), layout)) continue;
      for (int round = 0; round < 60; ++round) {
        SCOPED_TRACE(std::string(to_string(order)) + " " + std::string(to_string(layout)) + " " +
                     std::to_string(round));
        SimulatedPlan run{random_plan(random, order, layout), {}, {}, 0, {}, {}};
        if (round % 3 == 0) run.plan.encoder.dp = layout == Layout::disaggregated ? 1 : run.plan.encoder.dp;
        run.plan.trained = random_trained(trained);
        run.batch = random_batch(random, run.plan.gbs);
        if (round % 2 == 0) {
          for (Sample& sample : run.batch) {
            if (sample.encoder_output_tokens > 0) continue;
            sample.encoder_sequences = {{2, 16, 256}};
            sample.encoder_output_tokens = 3;
          }
        }
        const Assignment assignment = random_assignment(random, run.plan, run.batch.size());
        run.pipeline = plan_pipeline(run.plan, tiny_model(), cost, run.batch, cluster.gpu.usable_memory());
        const ModelSpec model = tiny_model();
        const Iteration iteration = make_iteration({model, cluster, cost}, run.plan, run.batch, assignment);
        const Timeline timeline = simulate(iteration.program, iteration.costs, Detail::usage);
        run.simulated_s = Seconds(timeline.makespan).count();
        run.loads = load_table(run.pipeline.pipeline, run.pipeline.features(), assignment.bin);
        run.floor_loads = load_table(run.pipeline.floor, run.pipeline.features(), assignment.bin);
        check(run);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

template <typename Check>
void for_each_run(const Check& check) {
  for_each_run(AnalyticCostModel(tiny_model(), slow_cluster()), check);
}

// Uses the order of the plan if it depends on nothing else.
TEST(PlanPipeline, FloorIsNeverAboveTheSimulation) {
  double part = 0;
  int runs = 0;
  for_each_run([&](const SimulatedPlan& run) {
    EXPECT_EQ(run.pipeline.bound,
              reads_tables(run.plan.order) ? BoundKind::simple : BoundKind::linear_program);
    if (reads_tables(run.plan.order)) return;
    const double floor = makespan(run.pipeline.floor, run.floor_loads);
    EXPECT_LE(floor, run.simulated_s);
    part += floor / run.simulated_s;
    ++runs;
  });
  EXPECT_GT(part / runs, 0.75);
}

TEST(PlanPipeline, BoundsAreNeverAboveTheSimulation) {
  double part = 0;
  int runs = 0;
  for_each_run([&](const SimulatedPlan& run) {
    MakespanBounds bounds(run.pipeline.floor, run.pipeline.bound);
    bounds.prepare(run.pipeline.features());
    const MakespanBound bound = bounds.bound(run.pipeline.features());
    EXPECT_LE(bound.seconds, run.simulated_s);
    EXPECT_LE(static_cast<int>(bound.kind), static_cast<int>(run.pipeline.bound));
    part += bound.seconds / run.simulated_s;
    ++runs;
  });
  EXPECT_GT(part / runs, 0.4);  // for random assignments
}

TEST(PlanPipeline, IsNearTheSimulation) {
  double error = 0;
  int runs = 0;
  for_each_run([&](const SimulatedPlan& run) {
    const double predicted = makespan(run.pipeline.pipeline, run.loads);
    EXPECT_GE(predicted, 0.999 * makespan(run.pipeline.floor, run.floor_loads));
    error += std::abs(predicted - run.simulated_s) / run.simulated_s;
    ++runs;
  });
  EXPECT_LT(error / runs, 0.1);
}

/// Another model, except that one sample in three takes longer or shorter than its work: by `excess_s`
/// forward and by as much for each half of the backward, on each stage of a module for which it has work.
class OddSamples final : public CostModelOver {
 public:
  OddSamples(const CostModel& base, double excess_s) : CostModelOver(base), excess_s_(excess_s) {}

  Seconds sample_excess(Op op, const Stage& stage, const Sample& sample) const override {
    const bool has_work = stage.llm_layers > 0 || !sample.encoder().empty();
    if (sample.llm_tokens % 3 != 0 || !has_work) return Seconds(0);
    return Seconds((op == Op::backward ? 2 : 1) * excess_s_);
  }

 private:
  double excess_s_;
};

TEST(PlanPipeline, IsNearTheSimulationOfSamplesThatTakeLonger) {
  // A third of the samples takes so much longer on each stage that a prediction from work alone is off by
  // more than a tenth of the makespan. The pipeline is closer.
  const AnalyticCostModel base(tiny_model(), slow_cluster());
  const OddSamples odd(base, 1e-3);
  double error = 0;
  double error_of_sums = 0;
  int runs = 0;
  for_each_run(odd, [&](const SimulatedPlan& run) {
    const double predicted = makespan(run.pipeline.pipeline, run.loads);
    const double floor = makespan(run.pipeline.floor, run.floor_loads);
    EXPECT_GE(predicted, 0.999 * floor);
    if (!reads_tables(run.plan.order)) {
      EXPECT_LE(floor, run.simulated_s);
    }
    error += std::abs(predicted - run.simulated_s) / run.simulated_s;
    error_of_sums += std::abs(floor - run.simulated_s) / run.simulated_s;
    ++runs;
  });
  EXPECT_LT(error / runs, 0.1);
  EXPECT_GT(error_of_sums / runs, 0.12);
}

TEST(PlanPipeline, HasNoExtraLoadsIfNoSampleTakesLonger) {
  const AnalyticCostModel cost(tiny_model(), slow_cluster());
  Random random(3);
  const Plan plan = disaggregated_plan({1, 1, 1, {4}}, {1, 2, 1, {3, 3}}, 2, 8);
  Batch batch = random_batch(random, 8);
  for (Sample& sample : batch) sample.llm_tokens += sample.llm_tokens % 3 == 0 ? 1 : 0;
  const auto pipeline = [&](double excess_s) {
    return plan_pipeline(plan, tiny_model(), OddSamples(cost, excess_s), batch);
  };
  const PlanPipeline usual = plan_pipeline(plan, tiny_model(), cost, batch);
  const PlanPipeline same = pipeline(1e-6);
  EXPECT_EQ(usual.values, same.values);
  EXPECT_EQ(usual.pipeline.loads.size(), same.pipeline.loads.size());
  ASSERT_EQ(usual.pipeline.steps.size(), same.pipeline.steps.size());
  for (std::size_t i = 0; i < same.pipeline.steps.size(); ++i) {
    const LoadTime& a = usual.pipeline.steps[i].duration;
    const LoadTime& b = same.pipeline.steps[i].duration;
    EXPECT_TRUE(a.fixed_s == b.fixed_s && a.scale == b.scale && a.load == b.load) << i;
  }
  // The excess of text applies to no encoder stage, so there are two kinds of excess. Backward adds no kind,
  // as its excess is twice the forward's.
  batch[0].encoder_sequences = {};
  batch[0].encoder_output_tokens = 0;
  batch[0].llm_tokens = 99;
  batch[1].encoder_sequences = {{2, 16, 256}};
  batch[1].encoder_output_tokens = 3;
  batch[1].llm_tokens = 33;
  EXPECT_EQ(pipeline(1e-6).values.size(), usual.values.size() + 2);
}

/// The forward of a module takes a millisecond per token, its backward two, and nothing else takes time.
/// Sample "a" takes 5 ms more forward and 7 more backward in the LLM, "b" 6 and 8 in the encoder.
class MillisecondTokens final : public CostModel {
 public:
  Seconds compute(Op op, const Stage& stage, const Work& work) const override {
    const std::int64_t tokens = stage.llm_layers > 0 ? work.llm.tokens : work.encoder.tokens;
    return Seconds((op == Op::forward ? 1e-3 : 2e-3) * static_cast<double>(tokens));
  }
  Seconds sample_excess(Op op, const Stage& stage, const Sample& sample) const override {
    const bool forward = op == Op::forward;
    if (sample.id == "a" && stage.llm_layers > 0) return Seconds(forward ? 5e-3 : 7e-3);
    if (sample.id == "b" && stage.llm_layers == 0) return Seconds(forward ? 6e-3 : 8e-3);
    return Seconds(0);
  }
  Seconds message(const Message&, const Program&) const override { return Seconds(0); }
  Seconds all_reduce(const Collective&, const Program&) const override { return Seconds(0); }
  Seconds optimizer_step(const Stage&) const override { return Seconds(0); }
  ModelState model_state(const Stage&) const override { return {}; }
  Bytes activation(const Stage&, const Work&) const override { return {}; }
  Bytes workspace(Op, const Stage&, const Work&) const override { return {}; }
};

TEST(PlanPipeline, CountsTheExcessOfSamples) {
  // Four samples of 4 encoder and 10 LLM tokens, one in each bin: two microbatches, dp 2 of encoder and LLM.
  // "a" is in microbatch 0 of dp rank 1. "b" is in microbatch 1, of whose encoder work each dp rank has half.
  // In ms, 1f1b on an encoder and an LLM rank:
  //   encoder forward 0: 8 / 2 = 4, to 4; 1: (8 + 6) / 2 = 7, to 11
  //   LLM, dp rank 0: 10 + 20 + 10 + 20 from 4 on, to 64, microbatch 0 done at 34
  //   LLM, dp rank 1: (10 + 5) + (20 + 7) from 4 on, to 46; 10 + 20, to 76
  //   encoder backward 0: 8, from 46; 1: (16 + 8) / 2 = 12, from 76 to 88
  // Without excess it is 4 + 2 x 30 + 8 = 72.
  Sample sample;
  sample.encoder_sequences = {{1, 4, 16}};
  sample.encoder_output_tokens = 4;
  sample.llm_tokens = 10;
  Batch batch(4, sample);
  const Plan plan = disaggregated_plan({1, 1, 2, {4}}, {1, 1, 2, {6}}, 2, 4);
  const auto makespan_ms = [&] {
    const PlanPipeline made = plan_pipeline(plan, tiny_model(), MillisecondTokens(), batch);
    const std::vector<std::int32_t> bin = {0, 1, 2, 3};
    return 1e3 * makespan(made.pipeline, load_table(made.pipeline, made.features(), bin));
  };
  EXPECT_NEAR(makespan_ms(), 72, 1e-6);
  batch[1].id = "a";
  batch[2].id = "b";
  EXPECT_NEAR(makespan_ms(), 88, 1e-6);
}

TEST(PlanPipeline, HasNoBoundIfSamplesMayTakeLessThanTheirWork) {
  const AnalyticCostModel cost(tiny_model(), slow_cluster());
  Random random(3);
  const Plan plan = disaggregated_plan({1, 1, 1, {4}}, {1, 2, 1, {3, 3}}, 2, 8);
  Batch batch = random_batch(random, 8);
  for (Sample& sample : batch) sample.llm_tokens += sample.llm_tokens % 3 == 0 ? 1 : 0;
  const auto kind = [&](double excess_s) {
    return plan_pipeline(plan, tiny_model(), OddSamples(cost, excess_s), batch).bound;
  };
  EXPECT_EQ(kind(-1e-6), BoundKind::linear_program);  // no such sample
  batch[5].llm_tokens = 6;
  EXPECT_EQ(kind(-1e-6), BoundKind::none);
  EXPECT_EQ(kind(1e-6), BoundKind::linear_program);
}

}  // namespace plan_pipeline_test
}  // namespace dflop::testing
