// A LiveVerdict says whether live measurements confirm a predicted difference between two plans.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/names.hpp"

namespace dflop {

enum class LiveVerdict : std::uint8_t { confirmed, refuted, cannot_say };
template <>
inline constexpr NameTable<LiveVerdict, 3> kNames<LiveVerdict> = {{{LiveVerdict::confirmed, "confirmed"},
                                                                   {LiveVerdict::refuted, "refuted"},
                                                                   {LiveVerdict::cannot_say, "cannot say"}}};

/// An Interval is a confidence interval of a mean.
struct Interval {
  double mean = 0;
  double low = 0;
  double high = 0;

  bool contains(double value) const { return low <= value && value <= high; }
  bool operator==(const Interval&) const = default;
};

/// The min number of values (blocks of steps) for a confidence interval.
inline constexpr std::size_t kMinBlocks = 5;

/// Returns the confidence interval of a trimmed mean, which omits the largest and the smallest fifth of the
/// values. A step that another process slowed down therefore has little effect. The interval is from Tukey
/// and McLaughlin (1963): Student's t of the winsorized deviation, with as many degrees of freedom as
/// remaining values. If neighboring values have a correlation r, as under a temporary load, the interval is
/// wider by sqrt((1 + r) / (1 - r)).
/// @pre at least kMinBlocks values; 0 < level < 1
Interval trimmed_interval(std::span<const double> values, double level);

/// JudgeOptions define when two differences count as equal.
struct JudgeOptions {
  double tolerance = 0.02;  ///< relative tolerance of the ratio second time / first time
  /// Tolerance as a fraction of the logarithm of the predicted ratio; the larger tolerance counts.
  double share = 0.25;
  double level = 0.95;
};

/// A Judgment holds differences as fractions: -0.06 means 6 % less time.
struct Judgment {
  double predicted = 0;
  Interval measured;
  Interval error;        ///< measured relative to predicted difference, block by block
  double tolerance = 0;  ///< measured / predicted ratio may be between 1 / (1 + tolerance) and 1 + tolerance
  LiveVerdict verdict = LiveVerdict::cannot_say;
  /// The number of additional blocks that would decide the verdict at the current noise. Empty if the verdict
  /// is decided, or if the error is so close to the tolerance that no number of blocks would decide it.
  std::optional<std::int64_t> more_blocks;

  /// Returns the interval of measured differences that count as correctly predicted.
  Interval tolerated() const {
    return {predicted, (1 + predicted) / (1 + tolerance) - 1, (1 + predicted) * (1 + tolerance) - 1};
  }
};

/// Judges a predicted difference between two times. It uses logarithms, so that a factor of 2 and a factor of
/// 1/2 are equally wrong. The prediction is confirmed if the interval of its error lies within the tolerance,
/// and refuted if the interval lies outside. A wrong verdict (confirmed although the error exceeds the
/// tolerance, or refuted although it does not) therefore has a probability of at most 1 - level. `measured`
/// and `predicted` are logarithms of second time / first time, block by block, from paired_blocks().
/// @pre both have the same size, at least kMinBlocks
Judgment judge(std::span<const double> measured, std::span<const double> predicted,
               const JudgeOptions& options = {});

/// Returns the mean of log(second / first) for each block of two neighboring pairs of steps. The two variants
/// run alternately as A B, B A, A B, ..., so that a machine that slows down at a constant rate does not
/// change any block. If the number of pairs is odd, the last one is omitted.
/// @pre both have the same size; all values are positive
std::vector<double> paired_blocks(std::span<const double> first, std::span<const double> second);

}  // namespace dflop
