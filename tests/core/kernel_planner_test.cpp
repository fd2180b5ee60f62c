#include "core/kernel_choice/kernel_planner.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "tests/core/kernel_clocks.hpp"

namespace dflop {
namespace kernel_planner_test {
namespace {

using testing::made_up_names;
using testing::MadeUpRun;
using testing::product_key;

/// Totals of a run of some steps.
struct Totals {
  double elapsed_ns = 0;
  double all_ns = 0;
  double default_ns = 0;
  double best_ns = 0;
};

/// Runs steps with choices as they arrive in another process, and checks in each that all ranks took the
/// same variants and that the budget held.
Totals run_steps(const MadeUpRun& run, KernelPlanner& planner, int steps, Random& random) {
  std::vector<RankKernels> ranks(static_cast<std::size_t>(run.ranks));
  Totals totals;
  for (int s = 0; s < steps; ++s) {
    const KernelChoices choices = parse_choices(to_bytes(planner.next_step()));
    EXPECT_EQ(choices, planner.next_step());
    const MadeUpRun::Step step = run.run(choices, ranks, random);
    for (const auto& variants : step.variants) EXPECT_EQ(variants, step.variants.front());
    planner.end_step(step.seen, step.elapsed_ns);
    totals.elapsed_ns += step.elapsed_ns;
    totals.all_ns += step.all_ns;
    totals.default_ns += step.default_ns;
    totals.best_ns += step.best_ns;
    const PlannerState& state = planner.state();
    EXPECT_LE(state.spent_ns, LearningRule().most * state.elapsed_ns) << "step " << s;
  }
  return totals;
}

MadeUpRun run_of(std::vector<testing::MadeUpKey> keys, int ranks) {
  MadeUpRun run;
  run.keys = std::move(keys);
  run.ranks = ranks;
  return run;
}

TEST(KernelPlanner, FindsTheFastestOfEachKeyWithinItsBudget) {
  // Defaults take 100, 200 and 50 us: the second variant is the best of the first key, none is of the
  // second, the third of the last one.
  const MadeUpRun run = run_of({{product_key(8), 40, {100e3, 120e3, 80e3, 900e3}},
                                {product_key(16), 20, {200e3, 230e3, 320e3, 210e3}},
                                {product_key(32), 60, {50e3, 45e3, 70e3, 40e3}}},
                               4);
  KernelPlanner planner(KernelMode::learn, KernelTable(made_up_names(4)));
  Random random(1);
  run_steps(run, planner, 400, random);
  EXPECT_EQ(planner.choose(product_key(8)), 2U);
  EXPECT_EQ(planner.choose(product_key(16)), 0U);
  EXPECT_EQ(planner.choose(product_key(32)), 3U);
  // Afterwards it takes at most 2 % more than if the best had always run.
  const Totals later = run_steps(run, planner, 200, random);
  EXPECT_LE(later.all_ns, later.best_ns / 0.98);
}

TEST(KernelPlanner, IsNeverSlowerThanTheDefault) {
  // All others are slower, some far.
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    std::vector<testing::MadeUpKey> keys;
    for (int k = 0; k < 8; ++k) {
      testing::MadeUpKey key{product_key(k + 1), 4 + static_cast<int>(random.below(40)), {}};
      key.ns.push_back(10e3 + 200e3 * random.uniform());
      for (int v = 1; v < 5; ++v) key.ns.push_back(key.ns.front() * (1 + 9 * std::pow(random.uniform(), 3)));
      keys.push_back(key);
    }
    const MadeUpRun run = run_of(keys, 1 + static_cast<int>(random.below(4)));
    KernelPlanner planner(KernelMode::learn, KernelTable(made_up_names(5)));
    const Totals totals = run_steps(run, planner, 300, random);
    EXPECT_GE(totals.default_ns / totals.all_ns, 0.995) << "seed " << seed;
  }
}

TEST(KernelPlanner, LeavesTheDefaultOnTies) {
  const MadeUpRun run = run_of({{product_key(8), 40, {100e3, 100e3, 100e3}}}, 2);
  int moved = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    KernelPlanner planner(KernelMode::learn, KernelTable(made_up_names(3)));
    Random random(seed);
    run_steps(run, planner, 150, random);
    moved += planner.choose(product_key(8)) != 0 ? 1 : 0;
  }
  // Intervals of 95 % that do not overlap are rarer than one in twenty.
  EXPECT_LE(moved, 2);
}

TEST(KernelPlanner, FollowsDrift) {
  // The second variant is the fastest at first, and 1.6 times as long from step 300 on.
  MadeUpRun run = run_of({{product_key(8), 40, {100e3, 80e3, 150e3}}}, 2);
  run.pace = [](std::int64_t step, int, std::size_t variant) {
    return variant == 1 && step >= 300 ? 1.6 : 1.0;
  };
  KernelPlanner planner(KernelMode::learn, KernelTable(made_up_names(3)));
  Random random(3);
  run_steps(run, planner, 300, random);
  EXPECT_EQ(planner.choose(product_key(8)), 1U);
  run_steps(run, planner, 100, random);
  EXPECT_EQ(planner.choose(product_key(8)), 0U);
}

TEST(KernelPlanner, IsNotFooledByAMachineThatSlowsDown) {
  // Everything takes twice as long from step 200 on: what was measured before says nothing against what is
  // in use.
  MadeUpRun run = run_of({{product_key(8), 40, {100e3, 80e3, 90e3}}}, 2);
  run.pace = [](std::int64_t step, int, std::size_t) { return step >= 200 ? 2.0 : 1.0; };
  KernelPlanner planner(KernelMode::learn, KernelTable(made_up_names(3)));
  Random random(4);
  run_steps(run, planner, 200, random);
  for (int i = 0; i < 20; ++i) {
    run_steps(run, planner, 10, random);
    EXPECT_EQ(planner.choose(product_key(8)), 1U);
  }
}

TEST(KernelPlanner, RanksNeverTakeDifferentVariants) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Random random(seed);
    MadeUpRun run = run_of({{product_key(8), 30, {100e3, 90e3, 110e3}},
                            {product_key(8, 100), 30, {20e3, 25e3, 18e3}},
                            {product_key(9), 7, {300e3, 200e3, 250e3}}},
                           2 + static_cast<int>(random.below(7)));
    // Each rank has a pace of its own, which drifts.
    run.pace = [](std::int64_t step, int rank, std::size_t variant) {
      return 1 + 0.2 * rank + 0.3 * std::sin(0.05 * static_cast<double>(step) * (rank + 1)) +
             0.1 * static_cast<double>(variant) * (rank % 2);
    };
    KernelPlanner planner(KernelMode::learn, KernelTable(made_up_names(3)));
    run_steps(run, planner, 200, random);
  }
}

TEST(KernelPlanner, ResumedIsAsIfItHadNeverStopped) {
  const MadeUpRun run =
      run_of({{product_key(8), 40, {100e3, 120e3, 80e3}}, {product_key(16), 20, {200e3, 190e3, 150e3}}}, 3);
  for (const int stop : {1, 7, 40, 90}) {
    KernelPlanner whole(KernelMode::learn, KernelTable(made_up_names(3)));
    Random random(5);
    run_steps(run, whole, 120, random);

    Random again(5);
    KernelPlanner first(KernelMode::learn, KernelTable(made_up_names(3)));
    run_steps(run, first, stop, again);
    KernelPlanner second(KernelMode::learn, PlannerState(first.state()));
    run_steps(run, second, 120 - stop, again);
    EXPECT_EQ(second.state(), whole.state());
  }
}

TEST(KernelPlanner, OfAProfileRepeatsItself) {
  KernelTable table(made_up_names(3));
  for (int i = 0; i < 10; ++i) {
    table.observe(product_key(8), 0, 100 + i % 2);
    table.observe(product_key(8), 2, 80 + i % 2);
  }
  KernelPlanner planner(KernelMode::profile, table);
  const KernelChoices choices = planner.next_step();
  EXPECT_EQ(choices.choice(product_key(8)).variant, 2U);
  EXPECT_EQ(choices.choice(product_key(8)).trials, 0U);
  // What steps see changes nothing.
  const MadeUpRun run = run_of({{product_key(8), 40, {10, 100, 100}}}, 2);
  Random random(6);
  std::vector<RankKernels> ranks(2);
  for (int s = 0; s < 50; ++s) {
    const MadeUpRun::Step step = run.run(planner.next_step(), ranks, random);
    EXPECT_EQ(step.variants.front(), std::vector<std::size_t>(40, 2));
    for (const auto& seen : step.seen) {
      for (const KernelObservation& o : seen) EXPECT_EQ(o.timed, 0);
    }
    planner.end_step(step.seen, step.elapsed_ns);
  }
  EXPECT_EQ(planner.state().table, table);
}

TEST(KernelPlanner, OfTheDefaultChoosesNothing) {
  KernelTable table(made_up_names(2));
  for (int i = 0; i < 10; ++i) {
    table.observe(product_key(8), 0, 100 + i % 2);
    table.observe(product_key(8), 1, 10 + i % 2);
  }
  const KernelPlanner planner(KernelMode::fixed, table);
  EXPECT_EQ(planner.choose(product_key(8)), 0U);
  EXPECT_EQ(planner.next_step().by_key.size(), 0U);
}

}  // namespace
}  // namespace kernel_planner_test
}  // namespace dflop
