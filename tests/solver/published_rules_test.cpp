#include "solver/planners/published/rules.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/support/random.hpp"

namespace dflop {
namespace published_rules_test {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double between(Random& random, double least, double most) {
  return least + (most - least) * random.uniform();
}

Curve random_curve(Random& random, std::vector<double> x) {
  std::vector<double> y;
  for (std::size_t i = 0; i < x.size(); ++i) y.push_back(between(random, 10, 100));
  // Some curves decrease at their end, so that extrapolation reaches zero and below.
  if (random.below(4) == 0) y.back() = between(random, 0.1, y[y.size() - 2]);
  return {std::move(x), std::move(y)};
}

ModuleTables random_tables(Random& random, std::vector<double> grid, double units) {
  ModuleTables tables;
  tables.layers = 1 + static_cast<int>(random.below(12));
  for (const int tp : {1, 2, 4}) {
    if (tp > 1 && random.below(3) == 0) continue;
    tables.profiles.push_back({tp, random_curve(random, grid), between(random, 0, 10) / tp,
                               between(random, 1, 20) / tp, between(random, 0, 1) / units / tp,
                               between(random, 0, 1) / units / tp});
  }
  tables.mean_tflop = between(random, 1, 100);
  tables.mean_units = between(random, 0.2, 1) * units;
  tables.most_units = tables.mean_units * between(random, 1, 20);
  return tables;
}

struct Case {
  PublishedProfile profile;
  PublishedProblem problem;
};

Case random_case(std::uint64_t seed) {
  Random random(seed);
  return {{random_tables(random, {1, 2, 4, 8}, 4), random_tables(random, {1024, 2048, 4096}, 1500)},
          {2 + static_cast<int>(random.below(15)), 1 + static_cast<int>(random.below(40)),
           between(random, 20, 300)}};
}

/// Returns the curve's value as numpy and scipy compute it: on the piece that contains x, or the piece at the
/// end.
double interpolated(const Curve& curve, const std::vector<double>& x, double at) {
  std::size_t i = 0;
  while (i + 2 < x.size() && at >= x[i + 1]) ++i;
  const double left = curve.held(x[i]);
  return left + (curve.held(x[i + 1]) - left) * (at - x[i]) / (x[i + 1] - x[i]);
}

const std::vector<double> kTiles = {1, 2, 4, 8};
const std::vector<double> kTokens = {1024, 2048, 4096};

/// All pairs as lists of tp, pp, dp, tp, pp, dp, in the order of the released code.
std::vector<std::vector<int>> all_pairs(const Case& c) {
  const auto modules = [](const ModuleTables& tables, int gpus) {
    std::vector<std::vector<int>> all;
    for (const ModuleProfile& profile : tables.profiles) {
      for (int pp = 1; pp <= gpus; ++pp) {
        for (int dp = 1; dp <= gpus; ++dp) {
          if (profile.tp * pp * dp == gpus && pp <= tables.layers) all.push_back({profile.tp, pp, dp});
        }
      }
    }
    return all;
  };
  std::vector<std::vector<int>> pairs;
  for (int gpus = 1; gpus < c.problem.gpus; ++gpus) {
    for (const std::vector<int>& e : modules(c.profile.encoder, gpus)) {
      for (const std::vector<int>& l : modules(c.profile.llm, c.problem.gpus - gpus)) {
        pairs.push_back({e[0], e[1], e[2], l[0], l[1], l[2]});
      }
    }
  }
  return pairs;
}

const ModuleProfile& profile_of(const ModuleTables& tables, int tp) {
  return *std::ranges::find(tables.profiles, tp, &ModuleProfile::tp);
}

double duration(const ModuleTables& tables, const std::vector<double>& grid, int tp, int pp, double items,
                bool extends) {
  double units = tables.mean_units * items;
  if (!extends) units = std::clamp(units, grid.front(), grid.back());
  const double throughput = interpolated(profile_of(tables, tp).throughput, grid, units);
  return throughput > 0 ? tables.mean_tflop * items / (throughput * tp * pp) : kInfinity;
}

PublishedChoice choice(const std::vector<int>& p, int microbatches, double seconds) {
  return {{p[0], p[1], p[2], {}}, {p[3], p[4], p[5], {}}, microbatches, seconds};
}

/// Follows the loops of data_aware_optimizer.py.
std::optional<PublishedChoice> released_by_loops(const Case& c) {
  const ModuleTables& encoder = c.profile.encoder;
  const ModuleTables& llm = c.profile.llm;
  std::optional<PublishedChoice> chosen;
  double least = kInfinity;
  double fewest = kInfinity;
  for (const std::vector<int>& p : all_pairs(c)) {
    const int v_pp = p[1], v_dp = p[2], l_pp = p[4], l_dp = p[5];
    const auto memory = [&](const ModuleTables& tables, int tp, int pp, double units, int held) {
      const ModuleProfile& profile = profile_of(tables, tp);
      const double layers = std::ceil(static_cast<double>(tables.layers) / pp);
      const double state = profile.state_base + layers * profile.state_of_layer;
      const double activation = (profile.activation_base + profile.activation_of_layer * layers) * units;
      return (state + held * activation) * 1.25;
    };
    if (memory(encoder, p[0], v_pp, encoder.most_units * l_dp / v_dp, v_pp + l_pp) > c.problem.memory)
      continue;
    if (memory(llm, p[3], l_pp, llm.most_units, l_pp) > c.problem.memory) continue;
    const int most = c.problem.gbs / l_dp;
    if (most < 1) continue;
    int m = 1;
    double l_items = 0;
    double v_items = 0;
    for (;; ++m) {
      l_items = c.problem.gbs / (static_cast<double>(m) * l_dp);
      v_items = c.problem.gbs / (static_cast<double>(m) * v_dp);
      if (v_items >= 1 && l_items >= 1 && encoder.mean_units * v_items <= encoder.most_units &&
          llm.mean_units * l_items <= llm.most_units)
        break;
      if (m == most) break;
    }
    const double slowest = std::max(duration(encoder, kTiles, p[0], v_pp, v_items, true),
                                    duration(llm, kTokens, p[3], l_pp, l_items, true));
    const double seconds = (m + v_pp + l_pp - 1) * slowest;
    if (seconds < least * 1.1 && m < fewest) {
      least = seconds;
      fewest = m;
      chosen = choice(p, m, seconds);
    }
  }
  return chosen;
}

std::optional<PublishedChoice> printed_by_loops(const Case& c) {
  const ModuleTables& encoder = c.profile.encoder;
  const ModuleTables& llm = c.profile.llm;
  std::optional<PublishedChoice> chosen;
  for (const std::vector<int>& p : all_pairs(c)) {
    for (int m = 1; m <= c.problem.gbs / p[5]; ++m) {
      const double v_items = c.problem.gbs / (static_cast<double>(m) * p[2]);
      const double l_items = c.problem.gbs / (static_cast<double>(m) * p[5]);
      const auto fits = [&](const ModuleTables& tables, int tp, int pp, double items, int held) {
        const int layers = (tables.layers + pp - 1) / pp;
        const ModuleProfile& profile = profile_of(tables, tp);
        const double activation = held * profile.activation(layers) * tables.mean_units * items;
        return activation <= c.problem.memory - profile.state(layers);
      };
      if (!fits(encoder, p[0], p[1], v_items, p[1] + p[4]) || !fits(llm, p[3], p[4], l_items, p[4])) continue;
      const double slowest = std::max(duration(encoder, kTiles, p[0], p[1], v_items, false),
                                      duration(llm, kTokens, p[3], p[4], l_items, false));
      const double seconds = (m + p[1] + p[4] - 1) * slowest;
      if (seconds < (chosen ? chosen->seconds : kInfinity)) chosen = choice(p, m, seconds);
    }
  }
  return chosen;
}

/// Expects the same configuration, and the same seconds up to rounding.
void expect_same(const std::optional<PublishedChoice>& found, const std::optional<PublishedChoice>& expected,
                 std::uint64_t seed) {
  SCOPED_TRACE(seed);
  ASSERT_EQ(found.has_value(), expected.has_value());
  if (!found) return;
  EXPECT_EQ(found->encoder, expected->encoder);
  EXPECT_EQ(found->llm, expected->llm);
  EXPECT_EQ(found->microbatches, expected->microbatches);
  EXPECT_NEAR(found->seconds, expected->seconds, 1e-9 * expected->seconds);
}

TEST(PublishedRules, EqualTheReleasedLoops) {
  int chosen = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const Case c = random_case(seed);
    const PublishedChoices found = released_choice(c.profile, c.problem);
    expect_same(found.choice, released_by_loops(c), seed);
    chosen += found.choice.has_value();
  }
  EXPECT_GT(chosen, 500);
}

TEST(PublishedRules, EqualThePrintedLoops) {
  int chosen = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const Case c = random_case(seed);
    const PublishedChoices found = printed_choice(c.profile, c.problem);
    expect_same(found.choice, printed_by_loops(c), seed);
    chosen += found.choice.has_value();
  }
  EXPECT_GT(chosen, 500);
}

/// A module of one layer and tp 1 with constant throughput, whose items all have one unit.
ModuleTables plain(double flop) {
  ModuleTables tables;
  tables.layers = 1;
  tables.profiles = {{1, Curve({1, 2}, {1, 1})}};
  tables.mean_tflop = flop;
  tables.mean_units = 1;
  tables.most_units = 4;
  return tables;
}

// 3 GPUs, GBS 8. The pair with the encoder on 1 GPU and the LLM on dp 2 comes first: microbatches of at most
// 4 items need 8 / (m x 1) <= 4, so m = 2. T = (2 + 1) x max(1 x 4, 6 x 2) = 36. The pair with the encoder on
// dp 2 also has m = 2, so it is not taken, whatever its T = 3 x max(2, 24).
TEST(PublishedRules, TheFewestMicrobatchesThatFitTheLargestItem) {
  const PublishedProfile profile{plain(1), plain(6)};
  const PublishedChoices found = released_choice(profile, {3, 8, 1});
  EXPECT_EQ(found.candidates, 2);
  EXPECT_EQ(found.choice, (PublishedChoice{{1, 1, 1, {}}, {1, 1, 2, {}}, 2, 36}));
}

// The same as printed in the paper: T = (m + 1) x max(8 / m, 6 x 4 / m) for the first pair is smallest at its
// largest m = 4: 5 x 6 = 30. For the second pair, (m + 1) x 6 x 8 / m is smallest at m = 8: 54.
TEST(PublishedRules, AsPrintedEveryCountIsTried) {
  const PublishedProfile profile{plain(1), plain(6)};
  const PublishedChoices found = printed_choice(profile, {3, 8, 1});
  EXPECT_EQ(found.candidates, 4 + 8);
  EXPECT_EQ(found.choice, (PublishedChoice{{1, 1, 1, {}}, {1, 1, 2, {}}, 4, 30}));
}

// Points (1, 10), (2, 30), (4, 20): 20 and 25 halfway. Beyond the ends the lines give -10 at 0 and 15 at 5.
TEST(PublishedRules, CurvesAreExtrapolatedOrConstant) {
  const Curve curve({1, 2, 4}, {10, 30, 20});
  EXPECT_DOUBLE_EQ(curve.extended(1.5), 20);
  EXPECT_DOUBLE_EQ(curve.extended(3), 25);
  EXPECT_DOUBLE_EQ(curve.extended(0), -10);
  EXPECT_DOUBLE_EQ(curve.extended(5), 15);
  EXPECT_DOUBLE_EQ(curve.held(0), 10);
  EXPECT_DOUBLE_EQ(curve.held(5), 20);
}

}  // namespace published_rules_test
}  // namespace dflop
