// The median, of fits and measurements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace dflop {

/// The mean of the two in the middle where their number is even. @pre values is not empty
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace dflop
