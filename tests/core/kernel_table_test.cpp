#include "core/kernel_choice/kernel_table.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/kernel_choice/kernel_choices.hpp"
#include "core/support/random.hpp"
#include "tests/core/kernel_clocks.hpp"

namespace dflop {
namespace kernel_table_test {
namespace {

using testing::made_up_names;
using testing::product_key;

KernelStats stats_of(const std::vector<double>& values) {
  KernelStats stats;
  for (const double value : values) stats.add(value);
  return stats;
}

TEST(KernelStats, AreMeanAndVariance) {
  // The mean of 1, 2, 3, 6 is 3; the mean of the squares of -2, -1, 0, 3 is 14 / 4.
  const KernelStats stats = stats_of({1, 2, 3, 6});
  EXPECT_EQ(stats.count, 4);
  EXPECT_DOUBLE_EQ(stats.mean, 3);
  EXPECT_DOUBLE_EQ(stats.variance, 3.5);
  // Student's t of three degrees of freedom is 3.182: 3.182 * sqrt(3.5 / 3).
  EXPECT_NEAR(stats.half_width(), 3.437, 0.001);
  EXPECT_TRUE(std::isinf(stats_of({5}).half_width()));
}

TEST(KernelStats, MergedEqualThoseFromAllValues) {
  Random random(1);
  for (int draw = 0; draw < 200; ++draw) {
    std::vector<double> all;
    KernelStats merged;
    for (int part = 0; part < 4; ++part) {
      std::vector<double> values(random.below(10));
      for (double& value : values) value = random.uniform();
      merged.merge(stats_of(values));
      all.insert(all.end(), values.begin(), values.end());
    }
    const KernelStats expected = stats_of(all);
    EXPECT_EQ(merged.count, expected.count);
    EXPECT_NEAR(merged.mean, expected.mean, 1e-12);
    EXPECT_NEAR(merged.variance, expected.variance, 1e-12);
  }
}

TEST(KernelStats, ForgetOldValues) {
  // Of 64 values each new one takes 1/64 of the weight: after 640 of them e^-10 of the old ones is left.
  KernelStats stats;
  for (int i = 0; i < 1000; ++i) stats.add(1);
  for (int i = 0; i < 640; ++i) stats.add(2);
  EXPECT_NEAR(stats.mean, 2, 1e-4);
  // Merged, 64 newer ones leave nothing of the older.
  KernelStats newer;
  for (int i = 0; i < 64; ++i) newer.add(5);
  stats.merge(newer);
  EXPECT_DOUBLE_EQ(stats.mean, 5);
}

KernelTable::Entry entry_of(const std::vector<double>& means, double spread, int count = 10) {
  KernelTable::Entry entry(means.size());
  for (std::size_t v = 0; v < means.size(); ++v) {
    for (int i = 0; i < count; ++i) entry[v].add(means[v] + (i % 2 == 0 ? spread : -spread));
  }
  return entry;
}

TEST(KernelTable, ChoosesTheFastestThatIsSurelyFaster) {
  // Spreads of 1 give intervals of 2.262 / 3 to both sides of ten: 98.6 overlaps 100, 98 does not.
  EXPECT_EQ(KernelTable::best_of(entry_of({100, 98.6}, 1)), 0U);
  EXPECT_EQ(KernelTable::best_of(entry_of({100, 98}, 1)), 1U);
  EXPECT_EQ(KernelTable::best_of(entry_of({100, 98, 95, 96}, 1)), 2U);
  // One duration says nothing, neither of a variant nor of the default.
  KernelTable::Entry once = entry_of({100, 98}, 1);
  once[1] = stats_of({10});
  EXPECT_EQ(KernelTable::best_of(once), 0U);
  std::swap(once[0], once[1]);
  EXPECT_EQ(KernelTable::best_of(once), 0U);
}

TEST(KernelTable, TakesTheNearestBucketOfTheSameSizes) {
  KernelTable table(made_up_names(3));
  table.entry(product_key(8, 1024)) = entry_of({100, 50, 70}, 1);
  table.entry(product_key(8, 2048)) = entry_of({100, 70, 50}, 1);
  EXPECT_EQ(table.choose(product_key(8, 1024)), 1U);
  EXPECT_EQ(table.choose(product_key(8, 1000)), 1U);  // one bucket away
  EXPECT_EQ(table.choose(product_key(8, 3000)), 2U);
  EXPECT_EQ(table.choose(product_key(8, 1536)), 1U);  // as near to both: the smaller
  EXPECT_EQ(table.choose(product_key(8, 64)), 0U);    // eight buckets away
  EXPECT_EQ(table.choose(product_key(9, 1024)), 0U);  // of another size
  KernelKey other = product_key(8, 1024);
  other.dtype = DType::bf16;
  EXPECT_EQ(table.choose(other), 0U);
}

TEST(KernelTable, AndStepsMakeTheSameChoices) {
  // Keys lie in eight octaves of tokens, so that nearest ones are at most as far as they may be, or farther.
  // Of a third of the entries the default was never measured, so that they take what another says.
  Random random(3);
  int by_others = 0;
  for (int draw = 0; draw < 300; ++draw) {
    KernelTable table(made_up_names(4));
    const auto random_key = [&] {
      return product_key(8 + static_cast<int>(random.below(2)), std::int64_t{4} << random.below(8));
    };
    for (int i = 0; i < 4; ++i) {
      KernelTable::Entry& entry = table.entry(random_key());
      entry = entry_of({100, 50 + 100 * random.uniform(), 50 + 100 * random.uniform(), 90}, 1);
      if (random.below(3) == 0) entry.front() = {};
    }
    const KernelPlanner planner(KernelMode::profile, table);
    const KernelChoices choices = parse_choices(to_bytes(planner.next_step()));
    for (int call = 0; call < 20; ++call) {
      const KernelKey key = random_key();
      EXPECT_EQ(choices.choice(key).variant, table.choose(key)) << "draw " << draw;
      if (table.choose(key) != 0 && table.basis(key)->first != key) ++by_others;
    }
  }
  EXPECT_GT(by_others, 100);
}

TEST(KernelChoice, AlternatesDuringTrialsThenUsesTheVariantInUse) {
  const KernelChoice choice{.variant = 1, .tried = 2, .trials = 3};
  std::vector<std::size_t> taken;
  for (std::uint32_t call = 0; call < 9; ++call) taken.push_back(choice.of_call(call));
  EXPECT_EQ(taken, (std::vector<std::size_t>{2, 1, 1, 2, 2, 1, 1, 1, 1}));
}

TEST(RankKernels, ReportTheirTimes) {
  KernelChoices choices;
  choices.timed_one_of = 2;
  choices.by_key[product_key(8)] = {.variant = 1, .tried = 2, .trials = 1, .mean_ns = 10};
  RankKernels kernels;
  kernels.begin_step(choices);
  std::vector<bool> timed;
  for (int call = 0; call < 6; ++call) {
    const RankKernels::Chosen chosen = kernels.choose(product_key(8));
    timed.push_back(chosen.timed);
    // A call has twice the tokens of its bucket's middle: 0.5 brings it there.
    if (chosen.timed) RankKernels::observe(chosen, chosen.variant == 2 ? 26 : 22, 0.5);
  }
  EXPECT_EQ(timed, (std::vector<bool>{true, true, true, false, true, false}));
  const std::vector<KernelObservation> seen = kernels.end_step();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].calls, 6);
  EXPECT_EQ(seen[0].timed, 4);
  EXPECT_EQ(seen[0].trials, stats_of({13}));
  EXPECT_EQ(seen[0].used, stats_of({11, 11, 11}));
  EXPECT_EQ(seen[0].in_trials, stats_of({11}));
  EXPECT_DOUBLE_EQ(seen[0].excess_ns, 26 - 20);  // its own time, less the usual time for its tokens
}

TEST(RankKernels, DoNotTakeAnInterruptionForASlowVariant) {
  KernelChoices choices;
  choices.by_key[product_key(8)] = {.variant = 0, .tried = 1, .trials = 1, .mean_ns = 10};
  RankKernels kernels;
  kernels.begin_step(choices);
  const RankKernels::Chosen tried = kernels.choose(product_key(8));
  EXPECT_EQ(tried.variant, 1U);
  RankKernels::observe(tried, 1e6, 1);
  EXPECT_DOUBLE_EQ(kernels.end_step()[0].excess_ns, 256 * 10 - 10);
}

}  // namespace
}  // namespace kernel_table_test
}  // namespace dflop
