// When Adaptive Correction tracks: only while that pays.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/units.hpp"

namespace dflop {

enum class SwitchState : std::uint8_t {
  learning,       ///< tracking is on, for the first window
  measuring_off,  ///< tracking is off, to see what an iteration takes without it
  measuring_on,   ///< tracking is on: what it costs
  tracking,       ///< tracking is on
  resting,        ///< tracking is off; a monitor of iteration times waits for a change
};

std::string_view to_string(SwitchState state);

struct SwitchOptions {
  int measure = 4;      ///< iterations of each measuring state
  int window = 8;       ///< I: iterations over which the benefit is averaged
  double slack = 0.75;  ///< of the monitor, in standard deviations
  double limit = 6;
  /// At rest one iteration in so many is tracked; 0: none. Iteration times show shapes that have become slow,
  /// but hardly those that no longer are: a schedule that spares them wastes time as predicted.
  int probe = 0;
};

/// What one iteration says.
struct SwitchInput {
  Seconds actual{0};     ///< as it took
  Seconds predicted{0};  ///< by the cost model that its schedule was made with
  /// What corrections give, as a part of throughput: 1 - (time with them / time without). Read while
  /// tracking.
  double benefit = 0;
  /// What was tracked showed that something known has changed. Read of probes.
  bool changed = false;
};

/// The published rule: the cost C of tracking is measured once, throughput without less throughput with it,
/// as a part of the former; whenever the mean benefit of a window of I tracked iterations is at most C,
/// tracking stops. While it rests, a self-starting two-sided CUSUM (Hawkins 1987) of log(actual / predicted)
/// switches it on again.
///
///     learning --I--> measuring_off --m--> measuring_on --m--> tracking --I, pays not--> resting
///                                                                 ^ |                       |
///                                                                 +-+-- I, pays             |
///                                                                 +---------- drift --------+
///
/// Batches differ, so throughput is predicted seconds done per second; and C is measured after a first
/// window, when predictions know the slow shapes, or their chance numbers in a few batches would be taken for
/// C.
///
/// It only sees numbers: the same ones in the same order lead to the same states.
class CorrectionSwitch {
 public:
  /// @throws Error (input) for counts below 1 (window, measure), a negative slack or a limit that is not
  /// positive.
  explicit CorrectionSwitch(SwitchOptions options = {});

  SwitchState state() const { return state_; }
  /// Whether the next iteration is to be tracked.
  bool tracks() const;
  /// Whether C is known.
  bool measured() const { return iterations_ >= options_.window + 2 * std::int64_t{options_.measure}; }
  /// C as measured, never below 0; 0 until it is.
  double cost() const { return cost_; }
  /// Mean benefit of the last whole window.
  double benefit() const { return benefit_; }
  std::int64_t iterations() const { return iterations_; }

  /// After each iteration. Returns true when a window of `tracking` has ended, whether it goes on or not.
  /// @throws Error (input) for a time that is not positive and finite, or a benefit that is not finite.
  bool observe(const SwitchInput& input);

 private:
  void enter(SwitchState state);
  bool end_of_window(double benefit);
  void watch(double log_ratio);

  SwitchOptions options_;
  SwitchState state_ = SwitchState::learning;
  std::int64_t iterations_ = 0;
  int count_ = 0;                 ///< iterations in this state, or in this window of it
  std::vector<double> measured_;  ///< log(actual / predicted) of a measuring state
  double without_ = 0;            ///< their median without tracking
  double cost_ = 0;
  double benefits_ = 0;  ///< sum over the window
  double benefit_ = 0;
  int watched_ = 0;     ///< log ratios seen while resting
  double mean_ = 0;     ///< of log ratios while resting
  double squares_ = 0;  ///< sum of squared deviations from it
  double rise_ = 0;
  double fall_ = 0;
};

}  // namespace dflop
