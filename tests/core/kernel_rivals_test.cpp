// Compares the planner with two other rules, on made-up durations that drift: epsilon-greedy over the means
// so far (Raducanu, Boncz and Zukowski 2013, "Micro Adaptivity in Vectorwise", start from it), and tuning
// each key once, at its first call, as PyTorch's TunableOp does.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <vector>

#include "tests/core/kernel_clocks.hpp"

namespace dflop {
namespace kernel_rivals_test {
namespace {

using testing::MadeUpKey;
using testing::MadeUpRun;

constexpr int kSteps = 1500;
constexpr std::int64_t kTunedRuns = 3;
constexpr std::int64_t kAlways = std::numeric_limits<std::int64_t>::max();

/// A Case is a run of keys whose variants take from 0.75 to 4 times the default, each at its own pace, which
/// changes a few times.
MadeUpRun random_run(std::uint64_t seed) {
  Random random(seed);
  MadeUpRun run;
  run.ranks = 1 + static_cast<int>(random.below(4));
  constexpr std::size_t kVariants = 6;
  for (int k = 0; k < 10; ++k) {
    MadeUpKey key{testing::product_key(k + 1), 8 + static_cast<int>(random.below(40)), {}};
    key.ns.push_back(20e3 + 200e3 * random.uniform());
    for (std::size_t v = 1; v < kVariants; ++v) {
      key.ns.push_back(key.ns.front() * (0.75 + 3.25 * std::pow(random.uniform(), 2)));
    }
    run.keys.push_back(key);
  }
  // Each variant has a pace that changes once, at its own time, by up to a quarter.
  std::vector<std::pair<std::int64_t, double>> changes;
  for (std::size_t v = 0; v < kVariants; ++v) {
    changes.emplace_back(100 + static_cast<std::int64_t>(random.below(kSteps)),
                         0.8 + 0.45 * random.uniform());
  }
  run.pace = [changes](std::int64_t step, int, std::size_t variant) {
    return step >= changes[variant].first ? changes[variant].second : 1.0;
  };
  return run;
}

/// Total times of all calls of a run: of the rule, of the default, and of the best variant at every moment.
struct Totals {
  double all = 0;
  double fixed = 0;
  double best = 0;
};

Totals run_planner(const MadeUpRun& run, std::uint64_t seed) {
  Random random(seed);
  KernelPlanner planner(KernelMode::learn, KernelTable(testing::made_up_names(6)));
  std::vector<RankKernels> ranks(static_cast<std::size_t>(run.ranks));
  Totals totals;
  for (int s = 0; s < kSteps; ++s) {
    const MadeUpRun::Step step = run.run(planner.next_step(), ranks, random);
    planner.end_step(step.seen, step.elapsed_ns);
    totals.all += step.all_ns;
    totals.fixed += step.default_ns;
    totals.best += step.best_ns;
  }
  return totals;
}

/// Runs a rule that chooses at every call of the one rank whose choices all take: `choose(key, durations)`
/// returns the variant, and of each variant the first `learns` durations are kept.
using Durations = std::vector<KernelStats>;  // by variant
Totals run_rule(const MadeUpRun& run, std::uint64_t seed, std::int64_t learns,
                const std::function<std::size_t(const Durations&, Random&)>& choose) {
  Random random(seed);
  std::vector<Durations> seen(run.keys.size());
  Totals totals;
  for (int s = 0; s < kSteps; ++s) {
    for (std::size_t k = 0; k < run.keys.size(); ++k) {
      const MadeUpKey& key = run.keys[k];
      seen[k].resize(key.ns.size());
      for (int call = 0; call < key.calls * run.ranks; ++call) {
        const auto mean = [&](std::size_t v) { return key.ns[v] * run.pace(s, 0, v); };
        const std::size_t variant = choose(seen[k], random);
        const double chance = 1 + run.noise * (2 * random.uniform() - 1);
        // What a rule does not learn from decides as it was for ever.
        if (seen[k][variant].count < learns) seen[k][variant].add(mean(variant) * chance);
        totals.all += mean(variant) * chance;
      }
    }
  }
  return totals;
}

std::size_t fastest(const Durations& seen) {
  std::size_t best = 0;
  for (std::size_t v = 1; v < seen.size(); ++v) {
    if (seen[v].mean < seen[best].mean) best = v;
  }
  return best;
}

std::size_t epsilon_greedy(const Durations& seen, Random& random) {
  constexpr double kEpsilon = 0.05;
  for (std::size_t v = 0; v < seen.size(); ++v) {
    if (seen[v].count == 0) return v;
  }
  return random.uniform() < kEpsilon ? random.below(seen.size()) : fastest(seen);
}

std::size_t tuned_once(const Durations& seen, Random&) {
  for (std::size_t v = 0; v < seen.size(); ++v) {
    if (seen[v].count < kTunedRuns) return v;
  }
  return fastest(seen);
}

/// A Score is the mean part of the best that a rule came to, and the least over the default.
struct Score {
  double best = 0;
  double least_over_default = std::numeric_limits<double>::infinity();

  void add(double all, const Totals& run, int runs) {
    best += run.best / all / runs;
    least_over_default = std::min(least_over_default, run.fixed / all);
  }
};

TEST(KernelRivals, StayFartherFromTheBestThanThePlanner) {
  constexpr int kRuns = 3;
  Score planner;
  Score greedy;
  Score once;
  for (std::uint64_t seed = 1; seed <= kRuns; ++seed) {
    const MadeUpRun run = random_run(seed);
    const Totals own = run_planner(run, seed);
    planner.add(own.all, own, kRuns);
    greedy.add(run_rule(run, seed, kAlways, epsilon_greedy).all, own, kRuns);
    once.add(run_rule(run, seed, kTunedRuns, tuned_once).all, own, kRuns);
  }
  for (const auto& [name, score] :
       {std::pair("planner", planner), std::pair("epsilon_greedy", greedy), std::pair("tuned_once", once)}) {
    RecordProperty(name, fmt::format("{:.4f} of the best, at least {:.4f} x default", score.best,
                                     score.least_over_default));
  }
  EXPECT_GT(planner.best, greedy.best);
  EXPECT_GT(planner.best, once.best);
  EXPECT_GE(planner.least_over_default, 0.995);
}

}  // namespace
}  // namespace kernel_rivals_test
}  // namespace dflop
