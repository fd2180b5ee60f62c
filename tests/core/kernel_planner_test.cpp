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
    EXPECT_LE(planner.spent_fraction(), kMaxLearningBudget) << "step " << s;
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

TEST(KernelPlanner, CountsWhatAVeryMuchSlowerVariantCosts) {
  // The last one takes 100 times as long, more than anything is expected to. Both ranks call it once, as one
  // call says enough, and 198 calls of the default are then what was spent at least, less the noise.
  const MadeUpRun run = run_of({{product_key(8), 40, {100e3, 80e3, 100 * 100e3}}}, 2);
  KernelPlanner planner(KernelMode::learn, KernelTable(made_up_names(3)));
  Random random(2);
  std::vector<RankKernels> ranks(2);
  int slow_calls = 0;
  double elapsed_ns = 0;
  for (int s = 0; s < 1500; ++s) {
    const KernelChoices choices = planner.next_step();
    const KernelChoice choice = choices.choice(product_key(8));
    // While the budget is overdrawn nothing is on trial.
    if (planner.spent_fraction() > kMaxLearningBudget) {
      EXPECT_EQ(choice.trials, 0U);
    }
    const MadeUpRun::Step step = run.run(choices, ranks, random);
    for (const auto& variants : step.variants) slow_calls += std::count(variants.begin(), variants.end(), 2U);
    planner.end_step(step.seen, step.elapsed_ns);
    elapsed_ns += step.elapsed_ns;
  }
  EXPECT_EQ(slow_calls, 2);
  EXPECT_GE(planner.spent_fraction() * elapsed_ns, 2 * (90 - 1.1) * 100e3);
  EXPECT_EQ(planner.choose(product_key(8)), 1U);
}

TEST(KernelPlanner, DoesNotRetryVariantsThatWereFarTooSlow) {
  // A file says that the last variant takes 40 times as long. The one in use takes 1.3 times as long from
  // step 200 on, so that trials begin again.
  KernelTable table(made_up_names(3));
  for (int i = 0; i < 10; ++i) {
    for (std::size_t v = 0; v < 3; ++v) {
      table.entry(product_key(8))[v].add((v == 2 ? 40 * 100e3 : v == 1 ? 90e3 : 100e3) + i);
    }
  }
  MadeUpRun run = run_of({{product_key(8), 40, {100e3, 90e3, 40 * 100e3}}}, 2);
  run.pace = [](std::int64_t step, int, std::size_t variant) {
    return variant == 1 && step >= 200 ? 1.3 : 1.0;
  };
  KernelPlanner planner(KernelMode::learn, table);
  Random random(2);
  run_steps(run, planner, 1000, random);
  EXPECT_EQ(planner.choose(product_key(8)), 0U);
  EXPECT_EQ(planner.table().entries().at(product_key(8))[2].count, 10);
}

TEST(KernelPlanner, LearnsOfKeysThatAreCalledOnceInAStep) {
  const MadeUpRun run =
      run_of({{product_key(8), 40, {100e3, 100e3, 100e3}}, {product_key(16), 1, {200e3, 150e3, 300e3}}}, 2);
  KernelPlanner planner(KernelMode::learn, KernelTable(made_up_names(3)));
  Random random(1);
  run_steps(run, planner, 600, random);
  EXPECT_EQ(planner.choose(product_key(16)), 1U);
}

TEST(KernelPlanner, LearnsWhereCallsDifferBetweenStepsAndRanks) {
  // In the first step, and in one of seven, a rank has a single call; else each has from 20 to 40.
  MadeUpRun run = run_of({{product_key(8), 0, {100e3, 120e3, 75e3}}}, 3);
  run.calls = [](std::int64_t step, int rank, const testing::MadeUpKey&) {
    return step % 7 == 0 && rank == 1 ? 1 : 20 + static_cast<int>((7 * step + 5 * rank) % 20);
  };
  KernelPlanner planner(KernelMode::learn, KernelTable(made_up_names(3)));
  Random random(1);
  std::vector<RankKernels> ranks(3);
  for (int s = 0; s < 300; ++s) {
    const MadeUpRun::Step step = run.run(planner.next_step(), ranks, random);
    // Each rank's n-th call takes the same variant as every other rank's n-th call, if it has one.
    for (const auto& variants : step.variants) {
      const auto common = std::min(variants.size(), step.variants.front().size());
      EXPECT_TRUE(std::equal(variants.begin(), variants.begin() + static_cast<std::ptrdiff_t>(common),
                             step.variants.front().begin()));
    }
    planner.end_step(step.seen, step.elapsed_ns);
    EXPECT_LE(planner.spent_fraction(), kMaxLearningBudget);
    // One step of few calls does not stand in the way of trials for ever.
    std::size_t fewest = step.variants.front().size();
    for (const auto& variants : step.variants) fewest = std::min(fewest, variants.size());
    EXPECT_EQ(static_cast<std::size_t>(planner.states().begin()->second.calls), fewest);
  }
  EXPECT_EQ(planner.choose(product_key(8)), 2U);
}

TEST(KernelPlanner, ReturnsToADefaultThatWasMuchSlower) {
  // The default takes 2.5 times as long as the other until step 150, and half as long from then on.
  MadeUpRun run = run_of({{product_key(8), 40, {100e3, 40e3}}}, 2);
  run.pace = [](std::int64_t step, int, std::size_t variant) {
    return variant == 0 && step >= 150 ? 0.2 : 1.0;
  };
  KernelPlanner planner(KernelMode::learn, KernelTable(made_up_names(2)));
  Random random(1);
  run_steps(run, planner, 150, random);
  EXPECT_EQ(planner.choose(product_key(8)), 1U);
  run_steps(run, planner, 800, random);
  EXPECT_EQ(planner.choose(product_key(8)), 0U);
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
  // Everything takes twice as long from step 200 on: earlier measurements do not count against the variant in
  // use.
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

TEST(KernelPlanner, OfAProfileRepeatsItself) {
  KernelTable table(made_up_names(3));
  for (int i = 0; i < 10; ++i) {
    table.entry(product_key(8))[0].add(100 + i % 2);
    table.entry(product_key(8))[2].add(80 + i % 2);
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
  EXPECT_EQ(planner.table(), table);
}

TEST(KernelPlanner, OfTheDefaultChoosesNothing) {
  KernelTable table(made_up_names(2));
  for (int i = 0; i < 10; ++i) {
    table.entry(product_key(8))[0].add(100 + i % 2);
    table.entry(product_key(8))[1].add(10 + i % 2);
  }
  const KernelPlanner planner(KernelMode::fixed, table);
  EXPECT_EQ(planner.choose(product_key(8)), 0U);
  EXPECT_EQ(planner.next_step().by_key.size(), 0U);
}

}  // namespace
}  // namespace kernel_planner_test
}  // namespace dflop
