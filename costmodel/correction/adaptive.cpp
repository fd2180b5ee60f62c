#include "costmodel/correction/adaptive.hpp"

#include <utility>

namespace dflop {
namespace {

SwitchOptions options_for(std::optional<SwitchRule> rule, SwitchOptions options) {
  if (rule != SwitchRule::keep) options.probe = 0;
  return options;
}

}  // namespace

std::string_view to_string(SwitchRule rule) {
  return rule == SwitchRule::published ? "published" : "keep";
}

AdaptiveCorrection::AdaptiveCorrection(std::optional<SwitchRule> rule, SwitchOptions options)
    : rule_(rule), switch_(options_for(rule, options)) {}

void AdaptiveCorrection::learn(const Timeline& timeline, const CostModel& base, const Plan& plan,
                               std::span<const Sample> batch, const Assignment& assignment) {
  const std::int64_t changes = learned_.changes();
  learned_.learn(timeline, base, plan, batch, assignment);
  changed_ = learned_.changes() != changes;
}

/// Under `published` nothing is kept, and what was learned before a rest is out of use: tracking begins anew.
void AdaptiveCorrection::observe(Seconds actual, Seconds predicted, double benefit) {
  const bool changed = std::exchange(changed_, false);
  if (!rule_ || !switch_.observe({actual, predicted, benefit, changed})) return;
  if (rule_ == SwitchRule::keep && switch_.benefit() > 0) kept_ = learned_;
  if (rule_ == SwitchRule::published && rests()) learned_ = Correction();
}

}  // namespace dflop
