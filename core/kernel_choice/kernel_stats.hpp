// KernelStats are the durations of calls in three numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace dflop {

/// KernelStats have mean and variance of durations in nanoseconds. The newest count: once there are as many
/// as the window, the weight of older ones falls by the factor 1 - 1 / window with each new one.
struct KernelStats {
  static constexpr std::int64_t kWindow = 64;
  static constexpr std::int64_t kMostCount = std::int64_t{1}
                                             << 53;  // a double of a file holds no more exactly

  std::int64_t count = 0;  ///< of all, forgotten ones among them, or kMostCount
  double mean = 0;
  double variance = 0;  ///< of those that are there, not an estimate of others'

  bool operator==(const KernelStats&) const = default;

  /// Returns how many durations mean and variance stand for.
  double weight() const { return static_cast<double>(std::min(count, kWindow)); }

  void add(double ns) {
    count = std::min(count + 1, kMostCount);
    const double part = 1 / weight();
    const double difference = ns - mean;
    mean += part * difference;
    variance = (1 - part) * (variance + part * difference * difference);
  }

  /// Adds newer durations (Chan, Golub and LeVeque 1983); of older ones those count that the window has room
  /// for.
  void merge(const KernelStats& newer) {
    if (newer.count == 0) return;
    const double more = newer.weight();
    const double kept = std::min(weight(), static_cast<double>(kWindow) - more);
    const double all = kept + more;
    const double difference = newer.mean - mean;
    mean = kept == 0 ? newer.mean : mean + difference * more / all;
    variance = (kept * variance + more * newer.variance + difference * difference * kept * more / all) / all;
    count = std::min(count + newer.count, kMostCount);
  }

  /// Returns half the width of the interval that has the true mean with 95 %: Student's t, to two percent
  /// from five durations on; infinite with less than two.
  double half_width() const {
    const double free = weight() - 1;
    if (free < 1) return std::numeric_limits<double>::infinity();
    constexpr double kT[] = {12.706, 4.303, 3.182, 2.776};
    const double t = free < 5 ? kT[static_cast<int>(free) - 1] : 1.96 + 2.72 / free + 2.6 / (free * free);
    return t * std::sqrt(variance / free);
  }
  double low() const { return mean - half_width(); }
  double high() const { return mean + half_width(); }
};

}  // namespace dflop
