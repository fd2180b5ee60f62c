// The median of measurements.
#include "core/support/median.hpp"

#include <gtest/gtest.h>

namespace dflop {
namespace median_test {

TEST(Median, IsBetweenTheTwoInTheMiddle) {
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1, 2}), 2);
  EXPECT_EQ(median({9, 1, 2, 4}), 3);  // (2 + 4) / 2
}

/// The median is 10: 15 is near, 15.5 is not.
TEST(MeanWithoutOutliers, OmitsValuesFarFromTheMedian) {
  EXPECT_DOUBLE_EQ(mean_without_outliers({9, 10, 10, 15, 8}), 10.4);    // 52 / 5
  EXPECT_DOUBLE_EQ(mean_without_outliers({9, 10, 10, 15.5, 8}), 9.25);  // 37 / 4
  EXPECT_DOUBLE_EQ(mean_without_outliers({11, 10, 10, 4.5, 12}), 10.75);
}

/// Differences of times may have either sign: the median is 0.1, and the distances are 0.2, 0.1, 0, 0.1 and
/// 8.
TEST(MeanWithoutOutliers, TakesNegativeValues) {
  EXPECT_NEAR(mean_without_outliers({-0.1, 0, 0.1, 0.2, 8.1}), 0.05, 1e-15);
}

TEST(MeanWithoutOutliers, WorksIfValuesAreFewOrEqual) {
  EXPECT_EQ(mean_without_outliers({7}), 7);
  EXPECT_EQ(mean_without_outliers({7, 8}), 7.5);
  EXPECT_EQ(mean_without_outliers({3, 3, 3, 9}), 3);
}

}  // namespace median_test
}  // namespace dflop
