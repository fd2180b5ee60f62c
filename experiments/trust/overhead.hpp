// A simulated iteration includes only the training step. This file reports the time of a run outside its
// steps, and adds it to hours on request.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "experiments/presets/presets.hpp"
#include "experiments/studies/options.hpp"
#include "experiments/trust/assumptions.hpp"

namespace dflop {

/// An Overhead is the time of a run outside its steps, relative to step time.
struct Overhead {
  std::vector<std::pair<std::string, double>> parts;  ///< each with its name; "other" if it has none

  double sum() const;
};

/// Adds --overhead.
void add_overhead_option(Options& options);

/// Reads --overhead: 0.05, or parts by name. "allowance" stands for the value in the cluster's notes.
/// @throws Error (usage) for an unknown or repeated name, and for an allowance that the notes lack
Overhead read_overhead(const Values& values, const std::vector<NamedNotes>& notes);

/// Adds what a step does not include, the measured allowance for it and, for a training run, the overhead
/// included in the hours.
void assume_time(AssumptionBlock& block, const std::vector<NamedNotes>& notes, const Overhead& overhead,
                 bool has_hours);

}  // namespace dflop
