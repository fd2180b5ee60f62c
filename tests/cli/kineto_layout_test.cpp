// A plan adds what a recorded step's ranges do not tell, or contradicts them.
#include <gtest/gtest.h>

#include "costmodel/analytic/analytic.hpp"
#include "experiments/presets/presets.hpp"
#include "sim/engine.hpp"
#include "tests/core/fixtures.hpp"
#include "traces/profiler/pipeline_layout.hpp"

namespace dflop {
namespace kineto_layout_test {

struct PlannedRun {
  Plan plan;
  Program program;
  Timeline timeline;  ///< as simulated
};

/// Runs a batch of random samples: the encoder on two ranks, the LLM with dp 2 and two pipeline stages.
PlannedRun run_of(std::uint64_t seed, int microbatches = 3) {
  Random random(seed);
  PlannedRun run;
  run.plan = testing::disaggregated_plan({1, 1, 2, {4}}, {1, 2, 2, {3, 3}}, microbatches, 4 * microbatches);
  const Batch batch = testing::random_batch(random, run.plan.gbs);
  run.program = lower(run.plan, testing::tiny_model(), batch,
                      testing::random_assignment(random, run.plan, batch.size()));
  const AnalyticCostModel cost(testing::tiny_model(), find_cluster("a100-80g:4"));
  run.timeline = simulate(run.program, cost.price(run.program), Detail::spans);
  return run;
}

/// Returns a run as its ranges show it: without shapes, and with twice the bytes.
Timeline by_ranges(Timeline timeline) {
  timeline.stage_shapes.clear();
  timeline.works.clear();
  for (std::size_t s = 0; s < timeline.stages.size(); ++s) timeline.stages[s] = "stage " + std::to_string(s);
  for (GroupUsage& group : timeline.groups) group.dp_rank = 0;
  for (Span& span : timeline.spans) {
    span.work = -1;
    span.bytes.count *= 2;
    if (is_send(span.op)) span.op = Op::send;
    if (is_receive(span.op)) span.op = Op::receive;
  }
  return timeline;
}

TEST(KinetoLayout, ThePlanRestoresTheLayoutThatRangesOmit) {
  const PlannedRun run = run_of(1);
  Timeline recorded = by_ranges(run.timeline);
  ASSERT_NE(recorded, run.timeline);
  EXPECT_EQ(apply_layout(recorded, run.program, true), std::nullopt);
  EXPECT_EQ(recorded.stages, run.timeline.stages);
  EXPECT_EQ(recorded.stage_shapes, run.timeline.stage_shapes);
  EXPECT_EQ(recorded.groups, run.timeline.groups);
  for (std::size_t s = 0; s < recorded.spans.size(); ++s) {
    const Span& span = recorded.spans[s];
    EXPECT_EQ(span.bytes, run.timeline.spans[s].bytes) << s;
    EXPECT_EQ(span.op, run.timeline.spans[s].op) << s;
    if (!is_compute(span.op)) continue;
    EXPECT_EQ(recorded.works.at(static_cast<std::size_t>(span.work)),
              run.timeline.works.at(static_cast<std::size_t>(run.timeline.spans[s].work)));
  }
}

TEST(KinetoLayout, WithoutAScheduleStagesHaveShapesAndSpansNoWork) {
  const PlannedRun run = run_of(1);
  Timeline recorded = by_ranges(run.timeline);
  EXPECT_EQ(apply_layout(recorded, lower_without_work(run.plan, testing::tiny_model()), false), std::nullopt);
  EXPECT_EQ(recorded.stage_shapes, run.timeline.stage_shapes);
  EXPECT_TRUE(recorded.works.empty());
}

void expect_contradiction(Timeline recorded, const Program& program, const std::string& text) {
  const Timeline before = recorded;
  const auto found = apply_layout(recorded, program, true);
  ASSERT_TRUE(found.has_value()) << text;
  EXPECT_NE(found->find(text), std::string::npos) << *found;
  EXPECT_EQ(recorded, before) << "it is left as it was";
}

TEST(KinetoLayout, ContradictionsNameBoth) {
  const PlannedRun run = run_of(1);
  const Timeline recorded = by_ranges(run.timeline);
  Timeline fewer = recorded;
  fewer.groups.pop_back();
  expect_contradiction(fewer, run.program,
                       "the plan has the ranks 0, 1, 2, 3, 4, 5, but the traces are of 0, 1, 2, 3, 4");
  Timeline other_stage = recorded;
  for (Span& span : other_stage.spans) {
    if (span.rank == 0 && is_compute(span.op)) span.stage = 1;
  }
  expect_contradiction(other_stage, run.program, "rank 0 has ranges of stage 1, microbatch 0");
  expect_contradiction(recorded, run_of(1, 4).program, "the plan has stage 0, microbatch 3 on rank 0");
  expect_contradiction(by_ranges(run_of(1, 4).timeline), run.program,
                       "rank 0 has ranges of stage 0, microbatch 3");
}

// Another batch of the same plan has messages of other sizes, or other messages.
TEST(KinetoLayout, AnotherStepsScheduleIsAContradiction) {
  const Timeline recorded = by_ranges(run_of(1).timeline);
  for (std::uint64_t seed = 2; seed < 12; ++seed) {
    Timeline timeline = recorded;
    EXPECT_TRUE(apply_layout(timeline, run_of(seed).program, true).has_value()) << seed;
  }
}

}  // namespace kineto_layout_test
}  // namespace dflop
