// This file reports the time of a run outside its training steps, because a simulated iteration includes only
// the step. On request, it is added to the reported hours of a training run.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "experiments/presets/presets.hpp"
#include "experiments/trust/assumptions.hpp"

namespace dflop {

/// An Overhead is the time of a run outside its steps, relative to step time.
struct Overhead {
  /// Names and values; the name is "other" if the user gave none.
  std::vector<std::pair<std::string, double>> parts;

  double sum() const;
};

/// Adds an assumption that names what the step time does not include and the measured allowance for it. If
/// `has_hours`, it also has the overhead included in the hours of a training run.
void assume_time(AssumptionBlock& block, const std::vector<NamedNotes>& notes, const Overhead& overhead,
                 bool has_hours);

}  // namespace dflop
