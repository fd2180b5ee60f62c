#include "costmodel/correction/adaptive.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/refuse.hpp"
#include "core/support/median.hpp"

namespace dflop {
namespace {

constexpr int kFirstRatios = 4;       // with fewer, the spread is unknown
constexpr double kMinSpread = 0.005;  // of log ratios; smaller changes are not worth a switch
constexpr double kMaxLearned = 2;     // max change of the mean by one iteration, in standard deviations
constexpr double kAdaptiveMostDeviations = 4;  // one slow iteration does not reach a quiet monitor's limit

template <typename... Values>
void require(bool holds, fmt::format_string<Values...> expected, Values&&... values) {
  if (holds) return;
  refuse_input("correction switch", "expected {}", fmt::format(expected, std::forward<Values>(values)...));
}

SwitchOptions options_for(std::optional<SwitchRule> rule, SwitchOptions options) {
  if (rule != SwitchRule::keep) options.probe = 0;
  return options;
}

}  // namespace

CorrectionSwitch::CorrectionSwitch(SwitchOptions options) : options_(options) {
  require(options.measure >= 1, "at least 1 iteration to measure, found {}", options.measure);
  require(options.window >= 1, "a window of at least 1 iteration, found {}", options.window);
  require(options.slack >= 0, "a slack of at least 0, found {:f}", options.slack);
  require(options.probe >= 0, "a probe in at least 0 iterations, found {}", options.probe);
  require(options.limit > 0, "a limit above 0, found {:f}", options.limit);
}

bool CorrectionSwitch::tracks() const {
  if (state_ == SwitchState::resting) return options_.probe > 0 && (count_ + 1) % options_.probe == 0;
  return state_ != SwitchState::measuring_off;
}

void CorrectionSwitch::enter(SwitchState state) {
  state_ = state;
  count_ = watched_ = 0;
  measured_.clear();
  benefits_ = mean_ = squares_ = rise_ = fall_ = 0;
}

bool CorrectionSwitch::observe(const SwitchInput& input) {
  const auto positive = [](Seconds time) { return std::isfinite(time.count()) && time.count() > 0; };
  require(positive(input.actual) && positive(input.predicted),
          "positive times, found {:f} s actual and {:f} s predicted", input.actual.count(),
          input.predicted.count());
  require(std::isfinite(input.benefit), "a finite benefit, found {:f}", input.benefit);
  const bool tracked = tracks();
  ++iterations_;
  ++count_;
  if (state_ == SwitchState::tracking) return end_of_window(input.benefit);
  if (state_ == SwitchState::resting) {
    if (!tracked) watch(std::log(input.actual / input.predicted));  // a probe's time has the tracking cost
    if (tracked && input.changed) enter(SwitchState::tracking);
    return false;
  }
  if (state_ == SwitchState::learning) {
    if (count_ == options_.window) enter(SwitchState::measuring_off);
    return false;
  }
  measured_.push_back(std::log(input.actual / input.predicted));
  if (count_ < options_.measure) return false;
  const double usual = median(measured_);
  if (state_ == SwitchState::measuring_off) {
    without_ = usual;
    enter(SwitchState::measuring_on);
  } else {
    cost_ = std::max(0.0, 1 - std::exp(without_ - usual));
    enter(SwitchState::tracking);
  }
  return false;
}

bool CorrectionSwitch::end_of_window(double benefit) {
  benefits_ += benefit;
  if (count_ < options_.window) return false;
  benefit_ = benefits_ / options_.window;
  enter(benefit_ <= cost_ ? SwitchState::resting : SwitchState::tracking);
  return true;
}

void CorrectionSwitch::watch(double log_ratio) {
  ++watched_;
  if (watched_ > kFirstRatios) {
    const double known = watched_ - 1;
    const double spread = std::max(kMinSpread, std::sqrt(squares_ / (known - 1))) * std::sqrt(1 + 1 / known);
    const double z =
        std::clamp((log_ratio - mean_) / spread, -kAdaptiveMostDeviations, kAdaptiveMostDeviations);
    rise_ = std::max(0.0, rise_ + z - options_.slack);
    fall_ = std::max(0.0, fall_ - z - options_.slack);
    if (std::max(rise_, fall_) > options_.limit) return enter(SwitchState::tracking);
    // Otherwise a first slow iteration would make the second look normal.
    log_ratio = std::clamp(log_ratio, mean_ - kMaxLearned * spread, mean_ + kMaxLearned * spread);
  }
  const double off = log_ratio - mean_;  // Welford 1962
  mean_ += off / watched_;
  squares_ += off * (log_ratio - mean_);
}

AdaptiveCorrection::AdaptiveCorrection(std::optional<SwitchRule> rule, SwitchOptions options)
    : rule_(rule), switch_(options_for(rule, options)) {}

void AdaptiveCorrection::learn(const Timeline& timeline, const CostModel& base, const Plan& plan,
                               std::span<const Sample> batch, const Assignment& assignment) {
  const std::int64_t changes = learned_.changes();
  learned_.learn(timeline, base, plan, batch, assignment);
  changed_ = learned_.changes() != changes;
}

/// Ends an iteration. Under `published` no corrections are kept: when tracking stops, the learned corrections
/// are discarded, and learning starts anew.
void AdaptiveCorrection::observe(Seconds actual, Seconds predicted, double benefit) {
  const bool changed = std::exchange(changed_, false);
  if (!rule_ || !switch_.observe({actual, predicted, benefit, changed})) return;
  if (rule_ == SwitchRule::keep && switch_.benefit() > 0) kept_ = learned_;
  if (rule_ == SwitchRule::published && rests()) learned_ = Correction();
}

}  // namespace dflop
