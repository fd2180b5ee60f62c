// KernelStats summarize the durations of kernel calls in three numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace dflop {

/// KernelStats have the mean and variance of recent durations in nanoseconds. Once the window is full, each
/// new duration reduces the weight of the older ones by the factor 1 - 1 / window.
struct KernelStats {
  static constexpr std::int64_t kWindow = 64;

  std::int64_t count = 0;  ///< of all durations, including forgotten ones
  double mean = 0;
  double variance = 0;  ///< of these durations, not an estimate for a population

  bool operator==(const KernelStats&) const = default;

  /// Returns the number of durations that the mean and variance represent.
  double weight() const { return static_cast<double>(std::min(count, kWindow)); }

  void add(double ns) {
    ++count;
    const double part = 1 / weight();
    const double difference = ns - mean;
    mean += part * difference;
    variance = (1 - part) * (variance + part * difference * difference);
  }

  /// Adds newer durations (Chan, Golub and LeVeque 1983). Older ones keep the weight that the window has
  /// left.
  void merge(const KernelStats& newer) {
    if (newer.count == 0) return;
    const double more = newer.weight();
    const double kept = std::min(weight(), static_cast<double>(kWindow) - more);
    const double all = kept + more;
    const double difference = newer.mean - mean;
    mean = kept == 0 ? newer.mean : mean + difference * more / all;
    variance = (kept * variance + more * newer.variance + difference * difference * kept * more / all) / all;
    count += newer.count;
  }

  /// Returns half the width of the 95 % confidence interval of the mean; infinite for fewer than two
  /// durations. It approximates Student's t to two percent from five durations on.
  double half_width() const {
    const double free = weight() - 1;
    if (free < 1) return std::numeric_limits<double>::infinity();
    constexpr double kT[] = {12.706, 4.303, 3.182, 2.776};
    const double t = free < 5 ? kT[static_cast<int>(free) - 1] : 1.96 + 2.72 / free + 2.6 / (free * free);
    return t * std::sqrt(variance / free);
  }
  /// Returns the lower end of that confidence interval.
  double low() const { return mean - half_width(); }
  /// Returns the upper end of that confidence interval.
  double high() const { return mean + half_width(); }
};

}  // namespace dflop
