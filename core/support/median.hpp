// This header has robust averages for fits and measurements.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace dflop {

/// Returns the median; for an even number of values, the mean of the two in the middle. @pre values is not
/// empty
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// Returns the mean of the values near the median. A value is near if its distance from the median is at most
/// half the median, or at most four times the median distance, because differences of times may be close to
/// zero. This drops times during which other processes used the core. It keeps the usual tail of times, which
/// is longer above than below: the sum of many durations is near the sum of their means, which is above the
/// sum of their medians. @pre values is not empty
inline double mean_without_outliers(const std::vector<double>& values) {
  const double middle = median(values);
  std::vector<double> distances;
  for (const double value : values) distances.push_back(std::abs(value - middle));
  const double near = std::max(0.5 * std::abs(middle), 4 * median(distances));
  double sum = 0;
  int count = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (distances[i] > near) continue;
    sum += values[i];
    ++count;
  }
  return sum / count;  // at least half of the distances are within their median
}

}  // namespace dflop
