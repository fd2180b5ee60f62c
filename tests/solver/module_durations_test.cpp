// The sums with which the planner dflop-expected computes lower bounds of configurations.
#include "solver/planners/expected/module_durations.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "costmodel/analytic/analytic.hpp"
#include "tests/costmodel/fixtures.hpp"
#include "tests/solver/fixtures.hpp"

namespace dflop {
namespace module_durations_test {

TEST(ShareGrid, HasEightStepsAnOctave) {
  std::vector<std::int64_t> values;
  for (int index = 1; index <= 26; ++index) values.push_back(share_grid::value(index));
  EXPECT_EQ(values, (std::vector<std::int64_t>{1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13,
                                               14, 15, 16, 18, 20, 22, 24, 26, 28, 30, 32, 36, 40}));
}

TEST(ShareGrid, FindsTheFirstThatIsNotLess) {
  for (std::int64_t shares = 1; shares <= 5000; ++shares) {
    const int index = share_grid::index_at_least(shares);
    EXPECT_GE(share_grid::value(index), shares);
    EXPECT_LT(share_grid::value(index - 1), shares);
  }
}

TEST(ItemBundles, SharesAreNoMoreThanTheMeanOfTheirItems) {
  Random random(6);
  for (int round = 0; round < 200; ++round) {
    std::vector<Sample> items = testing::small_random_batch(random, 1 + static_cast<int>(random.below(40)));
    for (Sample& item : items) {  // in odd rounds, each sequence is of either encoder
      for (EncoderSequences& sequences : item.encoder_sequences)
        sequences.second = round % 2 == 1 && random.below(2) == 1;
    }
    const int gbs = 1 + static_cast<int>(random.below(500));
    const std::int64_t shares = 1 + static_cast<std::int64_t>(random.below(5000));
    for (const BundleBy by : {BundleBy::mean, BundleBy::least}) {
      int count = 0;
      Workload bundled;
      for (const Bundle& bundle : bundle_items(items, static_cast<int>(random.below(4)), by)) {
        const Workload share = share_of_bundle(bundle.encoder, bundle.items, gbs, shares);
        const bool has_both = bundle.encoder.tokens > 0 && bundle.encoder.second.tokens > 0;
        if (!has_both) {
          EXPECT_EQ(share.empty(), bundle.encoder.empty());
        }
        count += bundle.items;
        for (int i = 0; i < bundle.items; ++i) bundled += share;
      }
      EXPECT_EQ(count, static_cast<int>(items.size()));
      Workload exact;
      for (const Sample& item : items) exact += share_of_batch(item.encoder(), gbs, shares);
      EXPECT_LE(bundled.sequences, exact.sequences);
      EXPECT_LE(bundled.tokens, exact.tokens);
      EXPECT_LE(bundled.attention_pairs, exact.attention_pairs);
      EXPECT_LE(bundled.second.sequences, exact.second.sequences);
      EXPECT_LE(bundled.second.tokens, exact.second.tokens);
      EXPECT_LE(bundled.second.attention_pairs, exact.second.attention_pairs);
    }
  }
}

double sum_over_items(const DurationTable& table, const DurationTable::Row& row,
                      const std::vector<Bundle>& bundles) {
  double sum = 0;
  for (std::size_t b = 0; b < bundles.size(); ++b) sum += bundles[b].items * table.at(row, b);
  return sum;
}

/// For every pipeline of a module: sums over bundles do not exceed sums over all items, and coarse sums
/// exceed neither the bundles nor the sums for fewer microbatches.
void expect_from_below(const ModelSpec& model, const CostModel& cost, std::uint64_t seed) {
  Random random(seed);
  const ClusterSpec cluster = testing::small_cluster(2, 4, 0);
  std::vector<Sample> items = testing::small_random_batch(random, 60);
  for (Sample& item : items) {
    for (EncoderSequences& sequences : item.encoder_sequences)
      sequences.second = model.second && random.below(2) == 1;
  }
  const SimExecutor executor;
  const PlanRequest request{{model, cluster, cost}, executor, 40, items, {}, 1, {}, {}};
  const PlanningItems planning(items, cost);
  for (const Module module : {Module::encoder, Module::llm}) {
    ModuleDurations durations(request, planning, module);
    for (const ModuleChoice& choice : durations.all().choices) {
      const int most = request.gbs / choice.dp;
      const int microbatches = 1 + static_cast<int>(random.below(most));
      const int fewer = 1 + static_cast<int>(random.below(microbatches));
      const int kind = durations.pipeline(choice).kind;
      const auto sum = [&](DurationTable& table, const std::vector<Bundle>& bundles, int count) {
        const DurationTable::Row& row = table.request(kind, std::int64_t{count} * choice.dp);
        table.fill();
        return sum_over_items(table, row, bundles) * (1 + 1e-12);
      };
      const double exact = sum(durations.single(), planning.single, microbatches);
      EXPECT_LE(sum(durations.bundles(), planning.bundles, microbatches), exact * (1 + 1e-9));
      EXPECT_LE(durations.coarse_sum(choice, microbatches), exact);
      EXPECT_LE(durations.coarse_sum(choice, microbatches), sum(durations.single(), planning.single, fewer));
    }
  }
}

TEST(ModuleDurations, AreLowerBoundsIfCostsAreConvex) {
  ClusterSpec cluster = fixtures::a100_cluster();
  cluster.gpu = fixtures::small_cluster().gpu;
  cluster.software = fixtures::small_software();
  cluster.software.layer_launch = Seconds(20);
  const AnalyticCostModel cost(fixtures::small_model(), cluster);
  EXPECT_EQ(PlanningItems({}, cost).by, BundleBy::mean);
  for (std::uint64_t seed = 0; seed < 10; ++seed) expect_from_below(fixtures::small_model(), cost, seed);
}

/// Items with only pictures do not pay the constant time of the second encoder, which is most of the time
/// here.
TEST(ModuleDurations, AreLowerBoundsWithTwoEncoders) {
  ClusterSpec cluster = fixtures::a100_cluster();
  cluster.gpu = fixtures::small_cluster().gpu;
  cluster.software = fixtures::small_software();
  cluster.software.kernel_overhead = Seconds(1e5);
  ModelSpec model = fixtures::small_model();
  model.second = SecondEncoder{{"ears", 8, 4, 8, 2, 2, 2, false, false, 0}, {{8, 8}, 2}};
  const AnalyticCostModel cost(model, cluster);
  EXPECT_EQ(PlanningItems({}, cost).by, BundleBy::mean);
  for (std::uint64_t seed = 0; seed < 10; ++seed) expect_from_below(model, cost, seed);
}

/// The more work there is, the less time an additional token takes.
class ConcaveCostModel final : public testing::LinearCostModel {
 public:
  Seconds compute(Op op, const Stage& stage, const Work& work) const override {
    return Seconds(std::sqrt(LinearCostModel::compute(op, stage, work).count()));
  }
};

TEST(ModuleDurations, AreLowerBoundsForUnknownCosts) {
  const ConcaveCostModel cost;
  EXPECT_EQ(PlanningItems({}, cost).by, BundleBy::least);
  for (std::uint64_t seed = 0; seed < 10; ++seed) expect_from_below(fixtures::small_model(), cost, seed);
}

TEST(ModuleChoices, PipelinesOfOneKindHaveTheSameSlowestStages) {
  const ModelSpec model = testing::small_model(5, 6);
  const ClusterSpec cluster = testing::small_cluster(2, 4, 0);
  const testing::LinearCostModel cost;
  const SimExecutor executor;
  const PlanRequest request{{model, cluster, cost}, executor, 40, {}, {}, 1, {}, {}};
  const ModuleChoices llm = module_choices(request, Module::llm);
  // 6 layers over 1 to 6 stages have at most 6, 3, 2, 2, 2 and 1 in a stage, with the embedding before the
  // first and the head after the last. With 3 stages {2, 2, 2} both ends have two layers. With 4 {2, 2, 1, 1}
  // and 5 the last stage has one: these form their own kind, as either end may be the slowest.
  const auto kind = [&](int tp, int pp) {
    for (const ModulePipeline& pipeline : llm.pipelines) {
      if (pipeline.tp == tp && pipeline.pp == pp) return pipeline.kind;
    }
    return -1;
  };
  EXPECT_NE(kind(1, 2), kind(1, 3));
  EXPECT_NE(kind(1, 3), kind(1, 4));
  EXPECT_EQ(kind(1, 4), kind(1, 5));
  EXPECT_NE(kind(1, 4), kind(2, 4));
  EXPECT_EQ(llm.kinds[kind(1, 4)].size(), 2u);
}

}  // namespace module_durations_test
}  // namespace dflop
