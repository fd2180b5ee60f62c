// Adaptive Correction over the iterations of a run: what is learned, what is in use, and when to learn.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "costmodel/correction/correction.hpp"
#include "costmodel/correction/switch.hpp"

namespace dflop {

/// What tracking is compared with to tell its benefit, and what is left of it while it rests.
enum class SwitchRule : std::uint8_t {
  published,  ///< with no correction; at rest there is none
  keep,  ///< with the last corrections that paid; at rest they stay in use, and probes look whether they hold
};

std::string_view to_string(SwitchRule rule);

/// Each iteration: schedule with in_use(); where tracks() says so, run it with spans and learn() from them;
/// then observe().
class AdaptiveCorrection {
 public:
  /// Without a rule it always tracks. Probes are made under SwitchRule::keep only.
  explicit AdaptiveCorrection(std::optional<SwitchRule> rule, SwitchOptions options = {});

  const Correction& in_use() const { return rests() ? kept_ : learned_; }
  const Correction& learned() const { return learned_; }
  /// What there would be without tracking, with which its benefit is compared.
  const Correction& kept() const { return kept_; }

  bool rests() const { return rule_ && switch_.state() == SwitchState::resting; }
  bool tracks() const { return !rule_ || switch_.tracks(); }
  /// Whether observe() asks for the benefit of this iteration.
  bool compares() const { return rule_ && switch_.state() == SwitchState::tracking; }
  /// Its state; none without a rule.
  const CorrectionSwitch& state() const { return switch_; }

  /// As Correction::learn().
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
