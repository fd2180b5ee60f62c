#include "solver/plan_pipeline.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/lowering.hpp"
#include "costmodel/analytic.hpp"
#include "costmodel/schedule_tables.hpp"
#include "sim/engine.hpp"
#include "solver/makespan_bound.hpp"
#include "tests/core/fixtures.hpp"
#include "tests/core/random_plan.hpp"
#include "tests/costmodel/fixtures.hpp"

namespace dflop::testing {
namespace {

/// A GPU on which the tiny model's passes take some microseconds, of which launches are a part, as messages
/// are.
ClusterSpec slow_cluster() {
  ClusterSpec cluster = tiny_cluster(64, 8);
  cluster.gpu = fixtures::a100();
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

/// Calls check(run) for random plans of every schedule and layout, batches with and without samples that have
/// nothing to encode, and random assignments.
template <typename Check>
void for_each_run(const Check& check) {
  Random random(7);
  const ClusterSpec cluster = slow_cluster();
  const AnalyticCostModel cost(tiny_model(), cluster);
  for (int k = 0; k < kPipelineSchedules; ++k) {
    const auto schedule = static_cast<PipelineSchedule>(k);
    for (const Layout layout : {Layout::disaggregated, Layout::uniform, Layout::colocated}) {
      if ((schedule == PipelineSchedule::encoder_in_bubbles) != (layout == Layout::colocated)) continue;
      for (int round = 0; round < 60; ++round) {
        SCOPED_TRACE(std::string(to_string(schedule)) + " " + std::string(to_string(layout)) + " " +
                     std::to_string(round));
        SimulatedPlan run{random_plan(random, schedule, layout), {}, {}, 0, {}, {}};
        if (round % 3 == 0) run.plan.encoder.dp = layout == Layout::disaggregated ? 1 : run.plan.encoder.dp;
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
        const PipelineOrder order =
            order_for_batch(run.plan, tiny_model(), cluster, cost, run.batch, assignment);
        const Program program = lower(run.plan, tiny_model(), run.batch, assignment, order);
        const Timeline timeline = simulate(program, cost.price(program), Detail::usage);
        run.simulated_s = Seconds(timeline.makespan).count();
        run.loads = load_table(run.pipeline.pipeline, run.pipeline.features(), assignment.bin);
        run.floor_loads = load_table(run.pipeline.floor, run.pipeline.features(), assignment.bin);
        check(run);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

// With the order of the plan where that depends on nothing else.
TEST(PlanPipeline, FloorIsNeverAboveTheSimulation) {
  double part = 0;
  int runs = 0;
  for_each_run([&](const SimulatedPlan& run) {
    EXPECT_EQ(run.pipeline.bound,
              reads_tables(run.plan.schedule) ? BoundKind::simple : BoundKind::linear_program);
    if (reads_tables(run.plan.schedule)) return;
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
  EXPECT_GT(part / runs, 0.4);  // of random assignments
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

/// The analytic model, but that one kind of sample takes longer or less than its work.
class OddSamples final : public CostModel {
 public:
  OddSamples(const CostModel& base, double excess_s) : base_(base), excess_s_(excess_s) {}

  Seconds compute(Op op, const Stage& stage, const Work& work) const override {
    return base_.compute(op, stage, work);
  }
  std::optional<Seconds> convex_floor(Op op, const Stage& stage, const Work& work) const override {
    return base_.convex_floor(op, stage, work);
  }
  Seconds sample_excess(Op op, const Stage&, const Sample& sample) const override {
    return Seconds(op == Op::backward && sample.llm_tokens == 7 ? excess_s_ : 0);
  }
  Seconds message(const Message& message, const Program& program) const override {
    return base_.message(message, program);
  }
  Seconds all_reduce(const Collective& collective, const Program& program) const override {
    return base_.all_reduce(collective, program);
  }
  Seconds optimizer_step(const Stage& stage) const override { return base_.optimizer_step(stage); }
  ModelState model_state(const Stage& stage) const override { return base_.model_state(stage); }
  Bytes activation(const Stage& stage, const Work& work) const override {
    return base_.activation(stage, work);
  }
  Bytes workspace(Op op, const Stage& stage, const Work& work) const override {
    return base_.workspace(op, stage, work);
  }

 private:
  const CostModel& base_;
  double excess_s_;
};

TEST(PlanPipeline, HasNoBoundWhereSamplesMayTakeLessThanTheirWork) {
  const AnalyticCostModel cost(tiny_model(), slow_cluster());
  Random random(3);
  const Plan plan = disaggregated_plan({1, 1, 1, {4}}, {1, 2, 1, {3, 3}}, 2, 8);
  Batch batch = random_batch(random, 8);
  const auto kind = [&](double excess_s) {
    return plan_pipeline(plan, tiny_model(), OddSamples(cost, excess_s), batch).bound;
  };
  EXPECT_EQ(kind(-1e-6), BoundKind::linear_program);  // no such sample
  batch[5].llm_tokens = 7;
  EXPECT_EQ(kind(-1e-6), BoundKind::none);
  EXPECT_EQ(kind(1e-6), BoundKind::linear_program);
}

}  // namespace
}  // namespace dflop::testing
