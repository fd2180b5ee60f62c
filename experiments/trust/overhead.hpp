// A simulated iteration includes only the training step. This file reports the time of a run outside its
// steps, and adds it to hours on request.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "experiments/presets/presets.hpp"
#include "experiments/trust/assumptions.hpp"

namespace dflop {

/// An Overhead is the time of a run outside its steps, relative to step time.
struct Overhead {
  std::vector<std::pair<std::string, double>> parts;  ///< each with its name; "other" if it has none

  double sum() const;
};

/// Adds what a step does not include, the measured allowance for it and, for a training run, the overhead
/// included in the hours.
void assume_time(AssumptionBlock& block, const std::vector<NamedNotes>& notes, const Overhead& overhead,
                 bool has_hours);

}  // namespace dflop
