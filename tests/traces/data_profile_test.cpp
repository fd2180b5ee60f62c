#include "traces/data/profile.hpp"

#include <cmath>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "core/support/random.hpp"

namespace dflop {
namespace data_profile_test {

TEST(DataProfile, QuantilesInterpolate) {
  // 0, 10, .., 100 in any order: the quantile q is 100 q, and 99 % lies 0.9 of the way from 90 to 100.
  const Series series = summarize("s", {50, 0, 100, 10, 90, 20, 80, 30, 70, 40, 60});
  EXPECT_EQ(series.name, "s");
  EXPECT_DOUBLE_EQ(series.min, 0);
  EXPECT_DOUBLE_EQ(series.p10, 10);
  EXPECT_DOUBLE_EQ(series.p25, 25);
  EXPECT_DOUBLE_EQ(series.p50, 50);
  EXPECT_DOUBLE_EQ(series.p75, 75);
  EXPECT_DOUBLE_EQ(series.p90, 90);
  EXPECT_DOUBLE_EQ(series.p95, 95);
  EXPECT_DOUBLE_EQ(series.p99, 99);
  EXPECT_DOUBLE_EQ(series.max, 100);
  EXPECT_DOUBLE_EQ(series.mean, 50);
}

TEST(DataProfile, HistogramEdgesArePowersOfTwo) {
  // 1 to 1000 spans ten octaves (1000 < 1024): two bins per octave, edges 1, 1.5, 2, 3, 4, 6, .., 512, 768,
  // 1024.
  const Histogram two = summarize("s", {1, 2, 3, 1000}).histogram;
  ASSERT_EQ(two.edges.size(), 21u);
  EXPECT_EQ(two.edges[0], 1);
  EXPECT_EQ(two.edges[1], 1.5);
  EXPECT_EQ(two.edges[3], 3);
  EXPECT_EQ(two.edges[20], 1024);
  EXPECT_EQ(two.counts,
            (std::vector<std::int64_t>{1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}));
  // One octave: four bins, plus one for zero.
  const Histogram four = summarize("s", {0, 4, 5, 7.9}).histogram;
  EXPECT_EQ(four.edges, (std::vector<double>{0, 4, 5, 6, 7, 8}));
  EXPECT_EQ(four.counts, (std::vector<std::int64_t>{1, 1, 1, 0, 1}));
  // 2^0 to 2^29 spans 30 octaves: two octaves per bin, 15 bins.
  const Histogram wide = summarize("s", {1, std::ldexp(1.0, 29)}).histogram;
  ASSERT_EQ(wide.counts.size(), 15u);
  EXPECT_EQ(wide.edges[1], 4);
}

TEST(DataProfile, HistogramHoldsEveryValueOnce) {
  Random random(6);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<double> values(1 + random.below(200));
    const double spread = 40 * random.uniform();
    for (double& value : values)
      value = random.below(10) == 0 ? 0 : std::exp2(spread * (random.uniform() - 0.5));
    const Histogram histogram = summarize("s", values).histogram;
    ASSERT_EQ(histogram.edges.size(), histogram.counts.size() + 1);
    EXPECT_LE(histogram.counts.size(), 21u);
    std::vector<std::int64_t> counts(histogram.counts.size());
    for (const double value : values) {
      for (std::size_t i = 0; i < counts.size(); ++i) {
        counts[i] += value >= histogram.edges[i] && value < histogram.edges[i + 1];
      }
    }
    EXPECT_EQ(histogram.counts, counts);
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}),
              static_cast<std::int64_t>(values.size()));
  }
}

TEST(DataProfile, DegenerateSeries) {
  const Series none = summarize("s", {});
  EXPECT_EQ(none.max, 0);
  EXPECT_TRUE(none.histogram.counts.empty());
  const Series zeros = summarize("s", {0, 0});
  EXPECT_EQ(zeros.p50, 0);
  EXPECT_EQ(zeros.histogram.counts, (std::vector<std::int64_t>{2}));
  EXPECT_THROW(summarize("s", {-1}), Error);
  EXPECT_THROW(summarize("s", {std::numeric_limits<double>::quiet_NaN()}), Error);
  EXPECT_THROW(summarize("s", {std::numeric_limits<double>::infinity()}), Error);
}

TEST(DataProfile, SeriesOfSamples) {
  // Two samples: one of 3 tiles of 10 tokens with 50 LLM tokens, and a text-only one with 7.
  std::vector<Sample> samples(2);
  samples[0].modality = Modality::multi_image;
  samples[0].encoder_sequences = {{2, 10, 100}, {1, 10, 100}};
  samples[0].llm_tokens = 50;
  samples[1].llm_tokens = 7;
  const DataProfile profile = profile_data(samples, std::vector<double>{0.5, 0});
  EXPECT_EQ(profile.samples, 2);
  EXPECT_EQ(profile.by_modality, (std::array<std::int64_t, kModalities>{1, 0, 1, 0, 0}));
  ASSERT_EQ(profile.series.size(), 4u);
  EXPECT_EQ(profile.series[0].name, "encoder_tiles");
  EXPECT_EQ(profile.series[0].max, 3);
  EXPECT_EQ(profile.series[0].min, 0);
  EXPECT_EQ(profile.series[1].name, "encoder_tokens");
  EXPECT_EQ(profile.series[1].max, 30);
  EXPECT_EQ(profile.series[2].name, "llm_tokens");
  EXPECT_EQ(profile.series[2].mean, 28.5);
  EXPECT_EQ(profile.series[3].name, "flop_ratio");
  EXPECT_EQ(profile.series[3].max, 0.5);
  EXPECT_EQ(profile_data(samples, {}).series.size(), 3u);
  EXPECT_THROW(profile_data(samples, std::vector<double>{1}), Error);
}

}  // namespace data_profile_test
}  // namespace dflop
