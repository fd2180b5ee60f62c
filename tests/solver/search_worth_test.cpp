// Searches without limits of their own take as much work as they are worth.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "solver/bins/ilp.hpp"
#include "solver/bins/local_search.hpp"
#include "solver/schedulers/methods.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "tests/solver/fixtures.hpp"
#include "tests/solver/makespan_fixtures.hpp"

namespace dflop {
namespace search_worth_test {

SolveLimits with(double gap, double part) {
  SolveLimits limits;
  limits.worth = SearchWorth{gap, part};
  return limits;
}

/// An eighth of 2 s is 0.25 s, which is 16 steps of 1/64 s.
TEST(SearchWorth, IsCountedInSteps) {
  const SolveLimits limits = with(0.5, 0.125);
  EXPECT_EQ(limits.worth_s(2, 1), 0.25);
  EXPECT_EQ(limits.worth_s(2, 0.125), 0.125);
  EXPECT_EQ(limits.steps_or(1000, 0.25, 1.0 / 64), 16);
  EXPECT_EQ(limits.steps_or(10, 0.25, 1.0 / 64), 10);
  EXPECT_EQ(limits.enough_gap(), 0.5);
  SolveLimits counted = limits;
  counted.steps = 7;
  EXPECT_EQ(counted.steps_or(1000, 0.25, 1.0 / 64), 7);
  EXPECT_EQ(counted.enough_gap(), 0);
  SolveLimits timed = limits;
  timed.time = Seconds(1);
  EXPECT_EQ(timed.steps_or(1000, 0.25, 1.0 / 64), 1000);
  EXPECT_EQ(timed.enough_gap(), 0);
  EXPECT_EQ(SolveLimits{}.steps_or(1000, SolveLimits{}.worth_s(2, 1), 1), 1000);
}

/// Items whose times take hours, and the same items in fractions of nanoseconds.
struct Items {
  std::vector<double> encoder_s;
  std::vector<double> llm_s;
  BinProblem problem;

  Items(Random& random, int items, int bins, double unit_s) {
    for (int i = 0; i < items; ++i) {
      encoder_s.push_back(unit_s * random.uniform());
      llm_s.push_back(unit_s * random.uniform());
    }
    problem = {encoder_s, llm_s, bins};
  }
  Items(const Items&) = delete;
};

constexpr double kHours = 1e4;
constexpr double kNothing = 1e-12;

TEST(SearchWorth, LongIterationsGetTheDefaultSearch) {
  Random random(5);
  for (int round = 0; round < 20; ++round) {
    const Items items(random, 8 + static_cast<int>(random.below(9)), 2 + static_cast<int>(random.below(3)),
                      kHours);
    EXPECT_EQ(local_search(items.problem, with(0, 1)).bin, local_search(items.problem, {}).bin);
    const AssignmentSolution whole = solve_ilp(items.problem, {});
    const AssignmentSolution found = solve_ilp(items.problem, with(0, 1));
    EXPECT_EQ(found.bin, whole.bin);
    EXPECT_EQ(found.bound, whole.bound);
    EXPECT_EQ(found.status, whole.status);
  }
}

TEST(SearchWorth, ShortIterationsGetLpt) {
  Random random(6);
  int proven = 0;
  for (int round = 0; round < 20; ++round) {
    const Items items(random, 12, 4, kNothing);
    const AssignmentSolution lpt = find_method("lpt").solve({items.problem}, {});
    for (const AssignmentSolution& found :
         {local_search(items.problem, with(0, 0.1)), solve_ilp(items.problem, with(0, 0.1))}) {
      EXPECT_DOUBLE_EQ(largest_load(items.problem, found.bin), lpt.value.count());
      EXPECT_EQ(found.bound_kind, BoundKind::simple);
    }
    proven += solve_ilp(items.problem, {}).bound_kind == BoundKind::integer_program ? 1 : 0;
  }
  EXPECT_GT(proven, 0);
}

TEST(SearchWorth, ASmallGapEndsTheSearch) {
  Random random(7);
  int ended = 0;
  for (int round = 0; round < 20; ++round) {
    const Items items(random, 16, 4, kHours);
    const AssignmentSolution whole = solve_ilp(items.problem, {});
    for (const double gap : {0.01, 0.1}) {
      for (const bool is_ilp : {false, true}) {
        const SolveLimits limits = with(gap, 1);
        const AssignmentSolution found =
            is_ilp ? solve_ilp(items.problem, limits) : local_search(items.problem, limits);
        const double value_s = largest_load(items.problem, found.bin);
        const double possible_s = std::min(found.bound.count(), value_s);
        EXPECT_LE(possible_s, largest_load(items.problem, whole.bin) * (1 + 1e-9));
        if (found.status != ScheduleStatus::heuristic) continue;
        ++ended;
        EXPECT_LE(value_s, found.bound.count() * (1 + gap) * (1 + 1e-9));
      }
    }
  }
  EXPECT_GT(ended, 20);
}

/// In a makespan's search the smallest number of steps is 16.
TEST(SearchWorth, LimitsTheSearchForTheMakespan) {
  Random random(8);
  int shorter = 0;
  for (int round = 0; round < 30; ++round) {
    LoadPipeline pipeline = testing::random_load_pipeline(random);
    std::vector<double> encoder_s;
    std::vector<double> llm_s;
    for (int i = 0; i < 3 * pipeline.bins(); ++i) {
      encoder_s.push_back(random.uniform());
      llm_s.push_back(0.1 + random.uniform());
    }
    const BinProblem bins{encoder_s, llm_s, pipeline.bins(), pipeline.dp, pipeline.loads[0].of_microbatch};
    const AssignmentProblem problem{bins, &pipeline, {encoder_s, llm_s}};
    const Method& method = find_method("makespan");
    SolveLimits few;
    few.steps = 16;
    const AssignmentSolution short_search = method.solve(problem, few);
    EXPECT_EQ(method.solve(problem, with(0, 1e-9)).bin, short_search.bin);
    const AssignmentSolution whole = method.solve(problem, {});
    shorter += whole.value < short_search.value ? 1 : 0;
    const AssignmentSolution near = method.solve(problem, with(0.05, 1e9));
    if (near.status == ScheduleStatus::heuristic) {
      EXPECT_LE(near.value.count(), near.bound.count() * 1.05 * (1 + 1e-9));
    }
    EXPECT_LE(whole.bound, near.value);
  }
  EXPECT_GT(shorter, 5);
}

/// With the plan's own times of hours, a scheduler takes its default steps; a number of steps always counts.
TEST(SearchWorth, SchedulersUseItOnlyWithoutLimits) {
  Random random(9);
  const testing::LinearCostModel cost;
  const ModelSpec model = testing::small_model(2, 3);
  for (int round = 0; round < 20; ++round) {
    Plan plan = testing::disaggregated_plan(model, 24, 2, 2, 3);
    plan.objective = Objective::makespan;
    const Batch batch = testing::small_random_batch(random, 24);
    ScheduleRequest request{batch, plan, model, cost};
    const ScheduleResult open = make_scheduler("makespan")->schedule(request);
    EXPECT_EQ(make_scheduler("makespan")->schedule(request).assignment.bin, open.assignment.bin);
    request.limits.steps = 4096;
    const ScheduleResult whole = make_scheduler("makespan")->schedule(request);
    EXPECT_LE(whole.value, open.value * 1.05);
    if (open.status != ScheduleStatus::heuristic) continue;
    EXPECT_LE(open.gap(), 1e-3 * (1 + 1e-6));
  }
}

}  // namespace search_worth_test
}  // namespace dflop
