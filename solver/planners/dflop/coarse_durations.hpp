// Sums of microbatch durations over all items, from below, at numbers of shares eight to an octave.
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <vector>

namespace dflop {

/// Whole numbers of at most four bits, followed by zeros: 1, 2, ..., 16, 18, 20, ..., 32, 36, ...
namespace share_grid {

inline constexpr int kSteps = 8;  // an octave

/// Place of the first number of the grid that is at least `shares`; 0 for 0.
constexpr int index_at_least(std::int64_t shares) {
  if (shares <= kSteps) return static_cast<int>(shares);
  const int zeros = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(shares - 1))) - 4;
  const std::int64_t step = std::int64_t{1} << zeros;
  return zeros * kSteps + static_cast<int>((shares + step - 1) >> zeros);
}

constexpr std::int64_t value(int index) {
  if (index <= kSteps) return index;
  const int zeros = (index - kSteps - 1) / kSteps;
  return std::int64_t{index - zeros * kSteps} << zeros;
}

}  // namespace share_grid

/// Of one module: for every kind of its pipelines the sum over items of the duration of a microbatch, at most
/// that of any number of shares up to the next of the grid. A table, filled at once.
class CoarseDurations {
 public:
  /// The sum over items at a number of shares; does not rise with shares. Called from several threads at
  /// once.
  using Sum = std::function<double(int kind, std::int64_t shares)>;

  /// `most_shares`: per kind.
  CoarseDurations(const std::vector<std::int64_t>& most_shares, const Sum& sum);

  /// No more than the sum at any number of shares up to this one.
  double sum(int kind, std::int64_t shares) const {
    return seconds_[kind][share_grid::index_at_least(shares)];
  }

 private:
  std::vector<std::vector<double>> seconds_;  // [kind][index on the grid]
};

}  // namespace dflop
