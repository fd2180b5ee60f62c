#include "solver/planners/trials/candidates.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "solver/plan_problem/trial.hpp"
#include "solver/planners/expected/planner.hpp"
#include "solver/planners/search/planner.hpp"
#include "solver/planners/uniform/planner.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "tests/solver/search_fixtures.hpp"

namespace dflop {
namespace candidates_test {

using testing::SmallSearch;

/// A small request in which memory matters: layers of every stage and all tokens take some.
SmallSearch small_case(std::uint64_t seed) {
  SmallSearch c(2, 4, 1, 4, 8, 2, seed);
  c.cost.linear.layer_bytes = 600;
  c.cost.linear.token_bytes = 60;
  c.cluster.gpu.memory = Bytes{seed % 2 == 0 ? std::int64_t{1} << 30 : 5400};
  return c;
}

/// The mean makespan under random microbatches; nothing if an iteration does not fit.
std::optional<Seconds> mean_of(const PlanRequest& request, const Plan& plan) {
  Nanoseconds total{0};
  for (std::size_t k = 0; k < request.batches.size(); ++k) {
    const Assignment assignment = random_assignment(request.batches[k].size(), plan, request.seed, k);
    const Timeline timeline = testing::run_plan(request, plan, request.batches[k], assignment);
    if (peak_memory(timeline) > request.cluster.gpu.usable_memory()) return std::nullopt;
    total += timeline.makespan;
  }
  return Seconds(total) / static_cast<double>(request.batches.size());
}

// Four GPUs and eight samples have few enough candidates to try all of them, so nothing may be missed.
TEST(Candidates, MoreFreedomIsNeverWorse) {
  int tighter = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const SmallSearch c = small_case(seed);
    for (const UniformSplit split : {UniformSplit::by_count, UniformSplit::encoder_first}) {
      const PlanResult free = UniformPlanner(split).plan(c.request());
      for (const Recomputation recomputation : all_of<Recomputation>()) {
        for (const RankOrder placement : all_of<RankOrder>()) {
          for (const std::int64_t bucket : {std::int64_t{0}, std::int64_t{25} << 20}) {
            PlanRequest fixed = c.request();
            fixed.search.recomputations = {recomputation};
            fixed.search.placements = {placement};
            fixed.search.gradient_buckets = {Bytes{bucket}};
            const PlanResult result = UniformPlanner(split).plan(fixed);
            if (!result.plan) continue;
            ASSERT_TRUE(free.plan) << free.infeasible_reason;
            EXPECT_LE(free.objective, result.objective) << describe(*result.plan);
            EXPECT_EQ(mean_of(fixed, *result.plan), result.objective);
            if (free.objective < result.objective) ++tighter;
          }
        }
      }
    }
  }
  EXPECT_GT(tighter, 0);
}

// One GPU and one sample leave one candidate. A pass keeps half as much with selective recomputation, and a
// third with full: one byte less than the need without recomputation requires selective.
TEST(Candidates, UseTheMinRecomputationThatFits) {
  SmallSearch c(2, 4, 1, 1, 1, 1, 5);
  c.cost.linear.token_bytes = 60;
  const PlanResult roomy = UniformPlanner(UniformSplit::by_count).plan(c.request());
  ASSERT_TRUE(roomy.plan);
  EXPECT_EQ(roomy.plan->recomputation, Recomputation::none);
  const Timeline timeline =
      testing::run_plan(c.request(), *roomy.plan, c.batches[0], random_assignment(1, *roomy.plan, 1, 0));
  c.cluster.gpu.memory = c.cluster.gpu.reserved_memory;
  c.cluster.gpu.memory += Bytes{peak_memory(timeline).count - 1};
  const PlanResult tight = UniformPlanner(UniformSplit::by_count).plan(c.request());
  ASSERT_TRUE(tight.plan) << tight.infeasible_reason;
  EXPECT_EQ(tight.plan->recomputation, Recomputation::selective);
}

// The chosen plan also fits further batches, which are not timed: one sample of 300 tokens needs more memory
// than samples of at most 50. With one byte less than its need without recomputation, the next mode is
// chosen.
TEST(Candidates, FitFurtherBatches) {
  SmallSearch c(2, 4, 1, 1, 1, 1, 5);
  c.cost.linear.token_bytes = 60;
  const std::vector<Batch> further{{testing::small_sample(1, 300)}};
  PlanRequest request = c.request();
  request.further = further;
  const PlanResult roomy = UniformPlanner(UniformSplit::by_count).plan(request);
  ASSERT_TRUE(roomy.plan);
  EXPECT_EQ(roomy.plan->recomputation, Recomputation::none);
  const Bytes needed = *filled_peak(request, *roomy.plan, further[0], *make_scheduler("random"), 1, 0, {});
  ASSERT_LT(peak_memory(testing::run_plan(request, *roomy.plan, c.batches[0],
                                          random_assignment(1, *roomy.plan, 1, 0))),
            needed);
  c.cluster.gpu.memory = c.cluster.gpu.reserved_memory;
  c.cluster.gpu.memory += Bytes{needed.count - 1};
  PlanRequest tight = c.request();
  EXPECT_EQ(UniformPlanner(UniformSplit::by_count).plan(tight).plan->recomputation, Recomputation::none);
  EXPECT_EQ(SearchPlanner().plan(tight).plan->recomputation, Recomputation::none);
  tight.further = further;
  EXPECT_EQ(UniformPlanner(UniformSplit::by_count).plan(tight).plan->recomputation, Recomputation::selective);
  EXPECT_EQ(SearchPlanner().plan(tight).plan->recomputation, Recomputation::selective);
  // If no plan fits the further batch, there is no result.
  c.cluster.gpu.memory = c.cluster.gpu.reserved_memory;
  c.cluster.gpu.memory += Bytes{needed.count / 10};
  PlanRequest none = c.request();
  none.further = further;
  EXPECT_FALSE(UniformPlanner(UniformSplit::by_count).plan(none).plan);
  EXPECT_FALSE(SearchPlanner().plan(none).plan);
}

/// A small request with samples for planners that look at means over the data.
PlanRequest profiled(const SmallSearch& c) {
  PlanRequest request = c.request();
  request.profile = c.batches.front();
  return request;
}

TEST(Candidates, IfNothingFitsTheMaxRecomputationComesFirst) {
  SmallSearch c = small_case(1);
  c.cluster.gpu.reserved_memory = c.cluster.gpu.memory;
  struct AnyPlan final : Planner {
    Plan any;
    std::string_view name() const override { return "any"; }
    PlanResult plan(const PlanRequest& request) const override {
      PlanResult result;
      result.plan = any;
      result.plan->recomputation = request.options.recomputation;
      return result;
    }
  } planner;
  planner.any = *UniformPlanner(UniformSplit::by_count).plan(small_case(1).request()).plan;
  const PlanResult result = with_best_parts(planner, c.request(), true);
  ASSERT_TRUE(result.plan);
  EXPECT_EQ(result.plan->recomputation, Recomputation::full);
  ASSERT_EQ(result.best.size(), 3u);
  EXPECT_EQ(result.best.back().plan.recomputation, Recomputation::none);
}

// The result has the objective of the chosen plan, not of the plan evaluated last.
TEST(Candidates, TheResultHasTheObjectiveOfTheBestPlan) {
  struct Told final : Planner {
    Plan any;
    std::string_view name() const override { return "told"; }
    PlanResult plan(const PlanRequest& request) const override {
      PlanResult result;
      result.plan = any;
      result.plan->recomputation = request.options.recomputation;
      result.objective = Seconds(1 + static_cast<int>(request.options.recomputation));
      result.candidates = 1;
      return result;
    }
  } planner;
  SmallSearch c = small_case(1);
  planner.any = *UniformPlanner(UniformSplit::by_count).plan(c.request()).plan;
  const PlanResult each = with_best_parts(planner, c.request(), true);
  ASSERT_TRUE(each.plan);
  EXPECT_EQ(each.plan->recomputation, Recomputation::none);  // which is the fastest
  EXPECT_EQ(each.objective, Seconds(1));
  EXPECT_EQ(each.candidates, 3);
}

// Lists are ordered by time and memory, whatever the order in the request; no buckets at all come last.
TEST(Candidates, FreePartsAreTriedInTheirOrder) {
  const SmallSearch c = small_case(1);
  PlanRequest request = c.request();
  request.search.recomputations = {Recomputation::full, Recomputation::none, Recomputation::full};
  request.search.placements = {RankOrder::replica_major, RankOrder::stage_major};
  request.search.gradient_buckets = {Bytes{0}, Bytes{5}};
  const FreeParts parts = free_parts(request);
  EXPECT_EQ(parts.recomputations, (std::vector{Recomputation::none, Recomputation::full}));
  EXPECT_EQ(parts.placements, (std::vector{RankOrder::stage_major, RankOrder::replica_major}));
  EXPECT_EQ(parts.gradient_buckets, (std::vector{Bytes{5}, Bytes{0}}));
}

// A planner that is given full recomputation makes a plan for it. If less recomputation fits, another plan is
// faster.
TEST(Candidates, PlannersOfParallelismPlanForEachRecomputation) {
  const ExpectedPlanner planner;
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const SmallSearch c = small_case(seed);
    const PlanResult free = with_best_parts(planner, profiled(c), true);
    for (const Recomputation recomputation : all_of<Recomputation>()) {
      PlanRequest fixed = profiled(c);
      fixed.search.recomputations = {recomputation};
      const PlanResult result = with_best_parts(planner, fixed, true);
      if (!result.plan) continue;
      const std::optional<Seconds> fixed_mean = mean_of(fixed, *result.plan);
      if (!fixed_mean) continue;
      ASSERT_TRUE(free.plan) << free.infeasible_reason;
      const std::optional<Seconds> free_mean = mean_of(profiled(c), *free.plan);
      ASSERT_TRUE(free_mean);
      EXPECT_LE(*free_mean, *fixed_mean) << describe(*result.plan);
      ++compared;
    }
  }
  EXPECT_GT(compared, 12);
}

/// Counts the iterations that are run.
class CountingExecutor final : public Executor {
 public:
  explicit CountingExecutor(const Executor& to) : to_(to) {}
  Timeline run(const Iteration& iteration, Detail detail) const override {
    ++runs;
    return to_.run(iteration, detail);
  }

  mutable std::atomic<int> runs = 0;

 private:
  const Executor& to_;
};

// Once a candidate fits, no other is started: each thread has started at most one.
TEST(Candidates, ATimeLimitEndsTheRaceWithFinishedPlans) {
  const SmallSearch c = small_case(2);
  const PlanRequest whole = c.request();
  const auto runs_of = [&](std::optional<Seconds> limit) {
    const CountingExecutor executor(whole.executor);
    PlanRequest request{static_cast<const Problem&>(whole),
                        executor,
                        whole.gbs,
                        whole.profile,
                        whole.batches,
                        whole.seed,
                        whole.options,
                        {},
                        whole.search,
                        {}};
    request.search.time_limit = limit;
    const PlanResult result = UniformPlanner(UniformSplit::by_count).plan(request);
    EXPECT_TRUE(result.plan) << result.infeasible_reason;
    EXPECT_GT(result.objective.count(), 0);
    return executor.runs.load();
  };
  const int all = runs_of({});
  EXPECT_EQ(runs_of(Seconds{3600}), all);
  const int few = runs_of(Seconds{1e-9});
  EXPECT_GE(few, 1);
  EXPECT_LE(few, static_cast<int>(std::thread::hardware_concurrency()));
  EXPECT_GT(all, 2 * static_cast<int>(std::thread::hardware_concurrency()));
}

// A layer has 600 bytes, and a replica on one GPU has all 6 layers, 3,600 bytes. Activations are small, with
// one sample per microbatch. With 3,000 bytes the smallest replica that fits has two GPUs.
TEST(HandSetPlanner, TakesTheSmallestReplicaThatFits) {
  SmallSearch c(2, 4, 1, 4, 8, 2, 3);
  c.cost.linear.layer_bytes = 600;
  c.cost.linear.token_bytes = 0;
  c.cluster.gpu.memory = Bytes{3600};
  const PlanResult whole = HandSetPlanner().plan(c.request());
  ASSERT_TRUE(whole.plan) << whole.infeasible_reason;
  EXPECT_EQ(describe(*whole.plan), "tp1 pp1 dp4 mb2");
  EXPECT_EQ(whole.plan->recomputation, Recomputation::full);
  c.cluster.gpu.memory = Bytes{3000};
  const PlanResult halved = HandSetPlanner().plan(c.request());
  ASSERT_TRUE(halved.plan) << halved.infeasible_reason;
  EXPECT_EQ(halved.plan->llm.tp * halved.plan->llm.pp, 2);
  EXPECT_EQ(halved.plan->microbatches, 4);  // 8 samples over dp 2, one per microbatch
  c.cluster.gpu.memory = Bytes{500};
  EXPECT_FALSE(HandSetPlanner().plan(c.request()).plan);
}

TEST(SearchPlanner, IsNeverWorseThanOtherPlannersAndNeverOverMemory) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    SmallSearch c = small_case(seed);
    c.search.budget = seed % 3 == 0 ? 1 : 20'000;
    if (seed % 4 == 1) c.search.recomputations = {Recomputation::selective};
    if (seed % 4 == 2) c.search.orders = {OrderKind::gpipe};
    const PlanRequest request = c.request();
    const PlanResult search = SearchPlanner().plan(request);
    for (const UniformSplit split : {UniformSplit::by_count, UniformSplit::encoder_first}) {
      const PlanResult other = UniformPlanner(split).plan(request);
      if (!other.plan) continue;
      ASSERT_TRUE(search.plan) << search.infeasible_reason;
      EXPECT_LE(search.objective, other.objective) << describe(*other.plan);
      ++compared;
    }
    for (const RankedPlan& ranked : search.best) {
      EXPECT_LE(ranked.peak_memory, request.cluster.gpu.usable_memory());
      EXPECT_LE(ranked.bound, ranked.objective);
    }
  }
  EXPECT_GT(compared, 12);
}

}  // namespace candidates_test
}  // namespace dflop
