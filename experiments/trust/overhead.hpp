// A simulated iteration is a training step and nothing else: what a run has beside its steps is told, and
// added to hours where it is asked for.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "experiments/presets/presets.hpp"
#include "experiments/studies/options.hpp"
#include "experiments/trust/assumptions.hpp"

namespace dflop {

/// An Overhead is what a run has beside its steps, as parts of their time.
struct Overhead {
  std::vector<std::pair<std::string, double>> parts;  ///< each with its name; "other" where none was given

  double sum() const;
};

/// Adds --overhead.
void add_overhead_option(Options& options);

/// Reads --overhead: 0.05, or parts by name. "allowance" is that of the cluster's notes.
/// @throws Error (usage) for another name, one twice, and an allowance that the notes have not
Overhead read_overhead(const Values& values, const std::vector<NamedNotes>& notes);

/// Says what a step has not, which allowance was measured for it, and, of a training, what hours have beside
/// steps.
void assume_time(AssumptionBlock& block, const std::vector<NamedNotes>& notes, const Overhead& overhead,
                 bool has_hours);

}  // namespace dflop
