// This file decides, over the iterations of a run, when Adaptive Correction tracks and learns, and which
// corrections are in use.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/names.hpp"
#include "core/units.hpp"
#include "costmodel/correction/correction.hpp"

namespace dflop {

/// A SwitchState is the state of a CorrectionSwitch. A tracked iteration records spans to learn from, which
/// costs time.
enum class SwitchState : std::uint8_t {
  learning,       ///< tracking is on during the first window
  measuring_off,  ///< tracking is off, to measure iteration time without it
  measuring_on,   ///< tracking is on, to measure its cost
  tracking,       ///< tracking is on
  resting,        ///< tracking is off; a monitor of iteration times waits for a change
};

template <>
inline constexpr NameTable<SwitchState, 5> kNames<SwitchState> = {
    {{SwitchState::learning, "learning"},
     {SwitchState::measuring_off, "measuring_off"},
     {SwitchState::measuring_on, "measuring_on"},
     {SwitchState::tracking, "tracking"},
     {SwitchState::resting, "resting"}}};

/// SwitchOptions configure how a switch measures and monitors.
struct SwitchOptions {
  int measure = 4;      ///< iterations of each measuring state
  int window = 8;       ///< I: the iterations over which the benefit is averaged
  double slack = 0.75;  ///< the monitor's, in standard deviations
  double limit = 6;
  /// In the state `resting`, the switch tracks one iteration out of this many, called a probe; 0: none.
  /// Iteration times reveal samples that became slow, but hardly samples that recovered: a schedule that
  /// still spares them takes exactly the predicted time.
  int probe = 0;
};

/// A SwitchInput holds the observations of one iteration.
struct SwitchInput {
  Seconds actual{0};     ///< measured time
  Seconds predicted{0};  ///< by the cost model that made its schedule
  /// This is the relative gain in throughput from corrections: 1 - (time with them / time without). Used only
  /// in the state `tracking`.
  double benefit = 0;
  /// True if tracking showed that a learned correction no longer holds. Used only in probes.
  bool changed = false;
};

/// A CorrectionSwitch follows the published rule. It measures the cost C of tracking once: the throughput
/// lost by tracking, as a fraction of the throughput without it. Whenever the mean benefit over a window of I
/// tracked iterations is at most C, tracking stops. In the state `resting`, a self-starting two-sided CUSUM
/// (Hawkins 1987) of log(actual / predicted) can turn it on again.
///
///     learning --I--> measuring_off --m--> measuring_on --m--> tracking --I, pays not--> resting
///                                                                 ^ |                       |
///                                                                 +-+-- I, pays             |
///                                                                 +---------- drift --------+
///
/// Batches differ, so throughput counts the predicted seconds of work done per second. C is measured after a
/// first window, when predictions already include the slow samples. Earlier, the random number of slow
/// samples in a few batches would distort C.
///
/// The switch sees only numbers: the same numbers in the same order lead to the same states.
class CorrectionSwitch {
 public:
  /// Starts in the learning state.
  /// @throws Error (input) for counts below 1 (window, measure), a negative slack or a limit that is not
  /// positive.
  explicit CorrectionSwitch(SwitchOptions options = {});

  SwitchState state() const { return state_; }
  /// Returns whether to track the next iteration.
  bool tracks() const;
  /// Returns whether C has been measured.
  bool measured() const { return iterations_ >= options_.window + 2 * std::int64_t{options_.measure}; }
  /// Returns the measured C, at least 0; 0 until measured() is true.
  double cost() const { return cost_; }
  /// Returns the mean benefit of the last whole window.
  double benefit() const { return benefit_; }
  std::int64_t iterations() const { return iterations_; }

  /// Updates the switch after an iteration. Call it after each iteration. Returns true when a window of the
  /// state `tracking` has ended, whether or not tracking continues.
  /// @throws Error (input) for a time that is not positive and finite, or a benefit that is not finite.
  bool observe(const SwitchInput& input);

 private:
  void enter(SwitchState state);
  bool end_of_window(double benefit);
  void watch(double log_ratio);

  SwitchOptions options_;
  SwitchState state_ = SwitchState::learning;
  std::int64_t iterations_ = 0;
  int count_ = 0;                 ///< iterations in this state, or in its current window
  std::vector<double> measured_;  ///< log(actual / predicted) in a measuring state
  double without_ = 0;            ///< median of measured_ without tracking
  double cost_ = 0;
  double benefits_ = 0;  ///< sum over the window
  double benefit_ = 0;
  int watched_ = 0;     ///< log ratios seen while resting
  double mean_ = 0;     ///< mean log ratio while resting
  double squares_ = 0;  ///< sum of squared deviations from mean_
  double rise_ = 0;
  double fall_ = 0;
};

/// A SwitchRule decides which corrections the benefit of tracking is measured against, and which stay in use
/// in the state `resting`.
enum class SwitchRule : std::uint8_t {
  published,  ///< compares with no correction, and uses none while resting
  keep,  ///< compares with the last corrections that paid, and keeps using them while resting; probes check
         ///< whether they still hold
};

template <>
inline constexpr NameTable<SwitchRule, 2> kNames<SwitchRule> = {
    {{SwitchRule::published, "published"}, {SwitchRule::keep, "keep"}}};

/// An AdaptiveCorrection corrects a run. In each iteration: schedule with in_use(); if tracks(), run with
/// spans and learn() from them; then call observe().
class AdaptiveCorrection {
 public:
  /// Follows `rule`; without a rule it always tracks. Only SwitchRule::keep makes probes.
  explicit AdaptiveCorrection(std::optional<SwitchRule> rule, SwitchOptions options = {});

  const Correction& in_use() const { return rests() ? kept_ : learned_; }
  const Correction& learned() const { return learned_; }
  /// Returns the corrections that stay in use while resting. The benefit of learned() is measured against
  /// them.
  const Correction& kept() const { return kept_; }

  bool rests() const { return rule_ && switch_.state() == SwitchState::resting; }
  bool tracks() const { return !rule_ || switch_.tracks(); }
  /// Returns whether observe() needs this iteration's benefit.
  bool compares() const { return rule_ && switch_.state() == SwitchState::tracking; }
  /// Returns the switch; without a rule it stays unused.
  const CorrectionSwitch& state() const { return switch_; }

  /// Learns from a tracked iteration, as Correction::learn() does.
  void learn(const Timeline& timeline, const CostModel& base, const Plan& plan, std::span<const Sample> batch,
             const Assignment& assignment);

  /// Ends an iteration. Takes its time, the time predicted with in_use() and, if compares(), the benefit of
  /// learned() over kept(): 1 - (time with learned() / time with kept()). @throws what
  /// CorrectionSwitch::observe() throws
  void observe(Seconds actual, Seconds predicted, double benefit);

 private:
  std::optional<SwitchRule> rule_;
  CorrectionSwitch switch_;
  Correction learned_;
  Correction kept_;
  bool changed_ = false;  ///< whether a learned correction changed in this iteration
};

}  // namespace dflop
