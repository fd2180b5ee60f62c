// Outliers of a window share batches, and no sample is lost.
#include "solver/service/outlier_delay.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/support/random.hpp"

namespace dflop {
namespace outlier_delay_test {

/// A Case is a window of batches with a heavy tail: costs follow a Pareto distribution, with ties.
struct Case {
  OutlierDelay delay;
  int batch = 1;
  std::vector<double> costs;

  int bins() const { return delay.microbatches * delay.dp; }
  double mean() const { return std::accumulate(costs.begin(), costs.end(), 0.0) / (delay.window * bins()); }
};

Case random_case(Random& random) {
  Case c;
  c.delay = {static_cast<int>(2 + random.below(7)), static_cast<int>(1 + random.below(6)),
             static_cast<int>(1 + random.below(5))};
  c.batch = c.bins() + static_cast<int>(random.below(40));
  const double tail = 0.5 + 2 * random.uniform();
  for (int i = 0; i < c.delay.window * c.batch; ++i)
    c.costs.push_back(std::ceil(std::pow(1 - random.uniform(), -tail)));
  return c;
}

/// Returns the sum over batches of the largest bin load if every outlier had its own bin: the load of the
/// batch's largest sample.
double sum_of_largest(const Case& c, const std::vector<std::int32_t>& order) {
  double sum = 0;
  for (int k = 0; k < c.delay.window; ++k) {
    double largest = 0;
    for (int i = 0; i < c.batch; ++i)
      largest = std::max(largest,
                         c.costs[static_cast<std::size_t>(order[static_cast<std::size_t>(k * c.batch + i)])]);
    sum += largest;
  }
  return sum;
}

/// Returns how far the samples of all batches of a window have moved.
DelayCount count_all(const std::vector<std::int32_t>& order, int batch) {
  DelayCount count;
  const auto size = static_cast<std::size_t>(batch);
  for (std::size_t begin = 0; begin < order.size(); begin += size)
    count_moved(std::span(order).subspan(begin, size), static_cast<int>(begin / size), batch, count);
  return count;
}

/// Two batches of four have a 9 and three 1s each, for two microbatches of two dp ranks. The mean bin is 24 /
/// (2 x 4) = 3, so both 9s are outliers and form a group of two. Both batches cost 3 without them: the first
/// takes them and gives its last 1 away. Before, each batch had to wait for a 9: 18. Now only the first does,
/// and the other's largest bin is a 1: 10.
TEST(OutlierDelayTest, TwoOutliersShareABatch) {
  const Case c{{2, 2, 2}, 4, {1, 9, 1, 1, 1, 1, 9, 1}};
  const std::vector<std::int32_t> order = delay_outliers(c.costs, c.batch, c.delay);
  EXPECT_EQ(order, (std::vector<std::int32_t>{0, 2, 1, 6, 4, 5, 7, 3}));
  std::vector<std::int32_t> drawn(8);
  std::iota(drawn.begin(), drawn.end(), 0);
  EXPECT_EQ(sum_of_largest(c, drawn), 18);
  EXPECT_EQ(sum_of_largest(c, order), 10);
  EXPECT_EQ(count_all(order, c.batch),
            (DelayCount{8, 2, 1, 2}));  // the 9 at 6 came earlier, the 1 at 3 later
}

/// The mean bin is 60 / (2 x 6) = 5, and six samples cost more: 9, 9, 8 and 8, 6, 6 are groups of three. The
/// batches cost 6 and 8 without them. The first takes the group of 26 and then has 32; the other takes the
/// group of 20 and has 28.
TEST(OutlierDelayTest, GroupsGoToTheSmallestBatch) {
  const Case c{{2, 2, 3}, 10, {9, 8, 8, 1, 1, 1, 1, 1, 1, 0, 9, 6, 6, 2, 1, 1, 1, 1, 1, 1}};
  ASSERT_EQ(c.mean(), 5);
  const std::vector<std::int32_t> order = delay_outliers(c.costs, c.batch, c.delay);
  EXPECT_EQ(order, (std::vector<std::int32_t>{3,  4,  5,  6,  7,  8,  9,  0, 10, 1,
                                              13, 14, 15, 16, 17, 18, 19, 2, 11, 12}));
}

TEST(OutlierDelayTest, WithoutOutliersBatchesStayAsDrawn) {
  std::vector<std::int32_t> drawn(6);
  std::iota(drawn.begin(), drawn.end(), 0);
  // Bins of two samples have a mean of 3, and no sample exceeds it.
  EXPECT_EQ(delay_outliers(std::vector<double>{1, 2, 1, 2, 1, 2}, 2, {3, 1, 1}), drawn);
  EXPECT_EQ(delay_outliers(std::vector<double>(6, 0.0), 2, {3, 1, 2}), drawn);
}

/// Every sample appears once, and so stays in its window: it moves fewer than `window` batches.
TEST(OutlierDelayTest, EachSampleComesOnce) {
  Random random(3);
  for (int round = 0; round < 300; ++round) {
    const Case c = random_case(random);
    std::vector<std::int32_t> order = delay_outliers(c.costs, c.batch, c.delay);
    EXPECT_LT(count_all(order, c.batch).most, c.delay.window);
    EXPECT_EQ(order, delay_outliers(c.costs, c.batch, c.delay));
    std::sort(order.begin(), order.end());
    for (std::size_t i = 0; i < order.size(); ++i) ASSERT_EQ(order[i], static_cast<std::int32_t>(i));
    ASSERT_EQ(order.size(), c.costs.size());
  }
}

/// A batch has no more outliers than bins, and, except for one batch, only whole groups of them. Other
/// samples only leave a batch that has too many.
TEST(OutlierDelayTest, OutliersFillMicrobatchesAndOthersStay) {
  Random random(4);
  for (int round = 0; round < 300; ++round) {
    const Case c = random_case(random);
    const std::vector<std::int32_t> order = delay_outliers(c.costs, c.batch, c.delay);
    int broken = 0;
    for (int k = 0; k < c.delay.window; ++k) {
      int outliers = 0;
      int own = 0;
      int others_drawn = 0;
      for (int i = k * c.batch; i < (k + 1) * c.batch; ++i) {
        const std::int32_t from = order[static_cast<std::size_t>(i)];
        const bool is_outlier = c.costs[static_cast<std::size_t>(from)] > c.mean();
        outliers += is_outlier ? 1 : 0;
        own += !is_outlier && from / c.batch == k ? 1 : 0;
        others_drawn += c.costs[static_cast<std::size_t>(i)] > c.mean() ? 0 : 1;
      }
      EXPECT_LE(outliers, c.bins());
      broken += outliers % c.delay.dp != 0 ? 1 : 0;
      EXPECT_EQ(own, std::min(others_drawn, c.batch - outliers));
    }
    EXPECT_LE(broken, 1);
  }
}

/// If one group has all outliers, no regrouping has a smaller sum of the batches' largest samples: one batch
/// has the largest of all, the others have none above the mean bin.
TEST(OutlierDelayTest, OneGroupIsOneBatch) {
  Random random(5);
  int seen = 0;
  while (seen < 50) {
    Case c = random_case(random);
    c.delay.dp = c.batch;
    c.delay.microbatches = 1;
    const auto outliers =
        std::count_if(c.costs.begin(), c.costs.end(), [&](double x) { return x > c.mean(); });
    if (outliers < 2 || outliers > c.batch) continue;
    ++seen;
    const std::vector<std::int32_t> order = delay_outliers(c.costs, c.batch, c.delay);
    int with = 0;
    for (int k = 0; k < c.delay.window; ++k) {
      with += std::any_of(order.begin() + k * c.batch, order.begin() + (k + 1) * c.batch,
                          [&](std::int32_t i) { return c.costs[static_cast<std::size_t>(i)] > c.mean(); });
    }
    EXPECT_EQ(with, 1);
  }
}

}  // namespace outlier_delay_test
}  // namespace dflop
