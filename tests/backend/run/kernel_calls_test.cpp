// The guide's calls in a live step equal unit_kernel_calls() for its stages and work.
#include <gtest/gtest.h>

#include <map>

#include "backend/model/parameter_list.hpp"
#include "core/kernel_choice/kernel_calls.hpp"
#include "core/kernel_choice/kernel_planner.hpp"
#include "core/padded_model.hpp"
#include "tests/backend/run/live_random.hpp"

namespace dflop {
namespace kernel_calls_test {
namespace {

using testing::LiveRun;
using Counts = std::map<KernelKey, std::int64_t>;

/// Returns how often a rank of the group calls each key.
Counts expected_calls(const LiveRun& run, const Group& group, int row_alignment) {
  Counts counts;
  const std::vector<StagePlace> places = stage_places(run.program.stages);
  for (const Instruction& i : run.program.instructions_of(group)) {
    if (!is_compute(i.op)) continue;
    const StagePlace& place = places[i.stage];
    const ModelSpec model = with_padded_rows(run.model, place.stage.tp, row_alignment);
    const Work& work = run.program.works[static_cast<std::size_t>(i.index)];
    for (const StageCall& made : stage_kernel_calls(model, place.stage, place.patches, i.op, work)) {
      counts[KernelKey(made.call)] += made.times;  // in f32, the first precision
    }
  }
  return counts;
}

Counts counts_of(const std::vector<KernelObservation>& seen) {
  Counts counts;
  for (const KernelObservation& o : seen) counts[o.key] = o.calls;
  return counts;
}

std::size_t group_of(const Program& program, int rank) {
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    const Group& group = program.groups[g];
    if (rank >= group.first_rank && rank < group.first_rank + group.ranks) return g;
  }
  return program.groups.size();
}

TEST(LiveKernelCalls, EqualThePredictedCallsOfTheStages) {
  Random random(3);
  for (int draw = 0; draw < 12; ++draw) {
    const Layout layout = draw % 2 == 0 ? Layout::disaggregated : Layout::uniform;
    const OrderKind order = draw % 3 == 0 ? OrderKind::zb_h1 : OrderKind::one_f_one_b;
    const testing::RandomCase c = testing::random_case(random, order, layout);
    const int row_alignment = draw % 4 < 2 ? 1 : 16;  // ffn is 24 and 32, and half of it under tp 2
    LiveRun run(c.plan, testing::deep_live_model(), c.samples, c.assignment, c.order, DType::f32, {}, 0,
                row_alignment);
    const KernelChoices choices;
    StepOptions options;
    options.kernels = &choices;
    const LiveResult result = run.executor->step(run.iteration(), options);
    ASSERT_EQ(static_cast<int>(result.kernels.size()), run.program.ranks());
    for (int rank = 0; rank < run.program.ranks(); ++rank) {
      const Group& group = run.program.groups[group_of(run.program, rank)];
      EXPECT_EQ(counts_of(result.kernels[static_cast<std::size_t>(rank)]),
                expected_calls(run, group, row_alignment))
          << "draw " << draw << ", rank " << rank;
    }
  }
}

TEST(LiveKernelCalls, OfDefaultChoicesDoNotChangeBits) {
  const std::vector<Sample> samples = testing::live_samples(6, 1);
  LiveRun without(testing::uniform_plan(2, 1, 1, 2), samples, DType::f32);
  LiveRun with(testing::uniform_plan(2, 1, 1, 2), samples, DType::f32);
  KernelChoices choices;
  choices.timed_one_of = 2;
  StepOptions options;
  options.kernels = &choices;
  EXPECT_EQ(with.executor->step(with.iteration(), options).loss, without.step(true).loss);
  EXPECT_EQ(with.step(true, 2).loss, without.step(true, 2).loss);
  EXPECT_TRUE(with.step(true, 3).kernels.front().empty());  // without choices, guides are not called
}

TEST(LiveKernelCalls, TeachThePlannerOnAllRanks) {
  LiveRun run(testing::uniform_plan(2, 1, 2, 2), testing::live_samples(8, 2), DType::f32);
  KernelPlanner planner(KernelMode::learn, KernelTable(run.executor->variant_names()));
  std::map<KernelKey, std::int64_t> callers;  // ranks that call a key, the same in every step
  for (int step = 1; step <= 6; ++step) {
    callers.clear();
    const KernelChoices choices = planner.next_step();
    StepOptions options;
    options.optimizer.step = step;
    options.kernels = &choices;
    const LiveResult result = run.executor->step(run.iteration(), options);
    for (const Group& group : run.program.groups) {
      const auto& first = result.kernels[static_cast<std::size_t>(group.first_rank)];
      for (int r = 1; r < group.ranks; ++r) {
        const auto& other = result.kernels[static_cast<std::size_t>(group.first_rank + r)];
        EXPECT_EQ(counts_of(other), counts_of(first));
      }
    }
    for (const std::vector<KernelObservation>& seen : result.kernels) {
      for (const auto& [key, calls] : counts_of(seen)) ++callers[key];
    }
    planner.end_step(result.kernels, static_cast<double>(result.timeline.makespan.count()));
  }
  EXPECT_GT(planner.states().size(), 10U);
  for (const auto& [key, state] : planner.states()) EXPECT_EQ(state.ranks, callers.at(key));
}

}  // namespace
}  // namespace kernel_calls_test
}  // namespace dflop
