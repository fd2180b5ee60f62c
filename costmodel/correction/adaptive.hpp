// Adaptive Correction decides over the iterations of a run: when to learn, what is learned and what is in
// use.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/names.hpp"
#include "core/units.hpp"
#include "costmodel/correction/correction.hpp"

namespace dflop {

/// A switch is in one of these states.
enum class SwitchState : std::uint8_t {
  learning,       ///< tracking is on, for the first window
  measuring_off,  ///< tracking is off, to see what an iteration takes without it
  measuring_on,   ///< tracking is on: what it costs
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

/// SwitchOptions say how a switch measures and watches.
struct SwitchOptions {
  int measure = 4;      ///< iterations of each measuring state
  int window = 8;       ///< I: iterations over which the benefit is averaged
  double slack = 0.75;  ///< of the monitor, in standard deviations
  double limit = 6;
  /// While the switch rests, one iteration in so many is tracked; 0: none. Iteration times show shapes that
  /// have become slow, but hardly those that no longer are: a schedule that spares them wastes time as
  /// predicted.
  int probe = 0;
};

/// A SwitchInput is what one iteration says.
struct SwitchInput {
  Seconds actual{0};     ///< as it took
  Seconds predicted{0};  ///< by the cost model that its schedule was made with
  /// This is what corrections give, as a part of throughput: 1 - (time with them / time without). Read while
  /// tracking.
  double benefit = 0;
  /// This says that what was tracked showed that something known has changed. Read of probes.
  bool changed = false;
};

/// A CorrectionSwitch follows the published rule: the cost C of tracking is measured once, throughput without
/// less throughput with it, as a part of the former; whenever the mean benefit of a window of I tracked
/// iterations is at most C, tracking stops. While it rests, a self-starting two-sided CUSUM (Hawkins 1987) of
/// log(actual / predicted) switches it on again.
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
  /// Begins to learn.
  /// @throws Error (input) for counts below 1 (window, measure), a negative slack or a limit that is not
  /// positive.
  explicit CorrectionSwitch(SwitchOptions options = {});

  SwitchState state() const { return state_; }
  /// Tells whether the next iteration is to be tracked.
  bool tracks() const;
  /// Tells whether C is known.
  bool measured() const { return iterations_ >= options_.window + 2 * std::int64_t{options_.measure}; }
  /// Returns C as measured, never below 0; 0 until it is.
  double cost() const { return cost_; }
  /// Returns the mean benefit of the last whole window.
  double benefit() const { return benefit_; }
  std::int64_t iterations() const { return iterations_; }

  /// Takes in one iteration, to be called after each. Returns true when a window of `tracking` has ended,
  /// whether it goes on or not.
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

/// A SwitchRule says what tracking is compared with to tell its benefit, and what is left of it while it
/// rests.
enum class SwitchRule : std::uint8_t {
  published,  ///< with no correction; at rest there is none
  keep,  ///< with the last corrections that paid; at rest they stay in use, and probes look whether they hold
};

template <>
inline constexpr NameTable<SwitchRule, 2> kNames<SwitchRule> = {
    {{SwitchRule::published, "published"}, {SwitchRule::keep, "keep"}}};

/// An AdaptiveCorrection is used in each iteration: schedule with in_use(); where tracks() says so, run it
/// with spans and learn() from them; then observe().
class AdaptiveCorrection {
 public:
  /// Makes one that follows `rule`; without a rule it always tracks. Probes are made under SwitchRule::keep
  /// only.
  explicit AdaptiveCorrection(std::optional<SwitchRule> rule, SwitchOptions options = {});

  const Correction& in_use() const { return rests() ? kept_ : learned_; }
  const Correction& learned() const { return learned_; }
  /// Returns what there would be without tracking, with which its benefit is compared.
  const Correction& kept() const { return kept_; }

  bool rests() const { return rule_ && switch_.state() == SwitchState::resting; }
  bool tracks() const { return !rule_ || switch_.tracks(); }
  /// Tells whether observe() asks for the benefit of this iteration.
  bool compares() const { return rule_ && switch_.state() == SwitchState::tracking; }
  /// Returns the switch, which follows nothing without a rule.
  const CorrectionSwitch& state() const { return switch_; }

  /// Learns from an iteration as Correction::learn() does.
  void learn(const Timeline& timeline, const CostModel& base, const Plan& plan, std::span<const Sample> batch,
             const Assignment& assignment);

  /// Ends an iteration: its time, that predicted with what was in use and, where compares() says so, the
  /// benefit of learned() over kept(), 1 - time / time. @throws as CorrectionSwitch::observe()
  void observe(Seconds actual, Seconds predicted, double benefit);

 private:
  std::optional<SwitchRule> rule_;
  CorrectionSwitch switch_;
  Correction learned_;
  Correction kept_;
  bool changed_ = false;  ///< something known, in this iteration
};

}  // namespace dflop
