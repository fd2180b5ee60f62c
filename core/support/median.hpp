// These functions find the middle of fits and measurements.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace dflop {

/// Returns the median, which is the mean of the two in the middle where their number is even. @pre values is
/// not empty
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// Returns the mean of the values that are near the median: within half of it, or within four times the
/// median of all distances from it, as differences of times may be close to zero. Times in which something
/// else had the processor are left out, but their tail, which is longer above than below, is not: sums of
/// many come out above the sum of their medians, but near that of these. @pre as median()
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
  return sum / count;  // half of the distances at least are within their median
}

}  // namespace dflop
