// A LiveVerdict says whether measured pairs of steps bear out a predicted difference.
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

/// An Interval holds a mean with the probability that was asked for.
struct Interval {
  double mean = 0;
  double low = 0;
  double high = 0;

  bool contains(double value) const { return low <= value && value <= high; }
  bool operator==(const Interval&) const = default;
};

/// Fewer values have no interval.
inline constexpr std::size_t kLeastBlocks = 5;

/// Returns the interval of the mean of values whose largest and smallest fifth are left out, so that a step
/// which something else on the machine has slowed down counts for no more than any other (Tukey and
/// McLaughlin 1963: Student's t of the winsorized deviation, on as many degrees as values are left). Where
/// neighbouring values are alike, as under a load that comes and stays, it is wider by
/// sqrt((1 + r) / (1 - r)), r being their correlation.
/// @pre at least kLeastBlocks values; 0 < level < 1
Interval trimmed_interval(std::span<const double> values, double level);

/// JudgeOptions say when two differences count as equal.
struct JudgeOptions {
  double tolerance = 0.02;  ///< of the second's time in that of the first
  double share = 0.25;      ///< or this part of the predicted difference's logarithm, if that is more
  double level = 0.95;
};

/// A Judgement holds differences as fractions: -0.06 is 6 % less time.
struct Judgement {
  double predicted = 0;
  Interval measured;
  Interval error;        ///< measured beside predicted, pair by pair
  double tolerance = 0;  ///< the error's ratio lies between 1 / (1 + tolerance) and 1 + tolerance
  LiveVerdict verdict = LiveVerdict::cannot_say;
  /// These many more blocks would settle it at today's noise; nothing where it is settled, or where the
  /// error is so near to the tolerance that no number would.
  std::optional<std::int64_t> more_blocks;

  /// Returns the measured differences that the prediction is right for.
  Interval tolerated() const {
    return {predicted, (1 + predicted) / (1 + tolerance) - 1, (1 + predicted) * (1 + tolerance) - 1};
  }
};

/// Judges a prediction, in logarithms, so that twice and half as long are as far off: it is confirmed where
/// the interval of its error lies within the tolerance, and refuted where it lies outside. So a prediction
/// that is off by more than the tolerance is confirmed, and one that is not is refuted, with probability 1 -
/// level at most. `measured` and `predicted` are logarithms of the second's time in that of the first, block
/// by block, as paired_blocks() makes them.
/// @pre as many of both, at least kLeastBlocks
Judgement judge(std::span<const double> measured, std::span<const double> predicted,
                const JudgeOptions& options = {});

/// Makes blocks of pairs of steps: the means of two neighbouring pairs' logarithms of second / first. The two
/// are run in turns A B, B A, A B, ..., so that a machine that becomes slower at an even rate changes no
/// block. A pair that is left over is left out.
/// @pre as many of both; all positive
std::vector<double> paired_blocks(std::span<const double> first, std::span<const double> second);

}  // namespace dflop
