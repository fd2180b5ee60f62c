// Calibration fits a GPU type's parameters to measured iterations, and says how good the fit is on rows it
// has not seen.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "experiments/studies/validation.hpp"
#include "traces/files/cluster_notes.hpp"

namespace dflop {

/// A FitParameter is one number of a cluster that measurements may decide.
struct FitParameter {
  std::string key;  ///< of the cluster file
  std::function<double(const ClusterSpec&)> get;
  std::function<void(ClusterSpec&, double)> set;
  double lower = 0;  ///< > 0
  double upper = 0;
};

/// Returns all parameters that are fitted where any row depends on them, with their bounds around the values
/// of `cluster`, bandwidths below the line rates of `notes`; docs/calibration.md says which formula each
/// enters.
std::vector<FitParameter> fit_parameters(const ClusterSpec& cluster, const ClusterNotes& notes = {});

/// A PreparedSet is a truth set whose programs are lowered, once for all predictions.
struct PreparedSet {
  TruthSet set;
  std::vector<TruthCase> runs;
  std::vector<Program> programs;
  std::vector<Program> skeletons;  ///< none of recorded iterations, whose microbatches are not equal

  bool is_recording() const { return skeletons.empty(); }
};

PreparedSet prepare(TruthSet set);

/// Prepares the iterations of a recording, simulated or live, of a training of `model`: each is a row,
/// measured by its makespan. A rank is taken to have had a GPU for itself. `path` is that of a timeline file.
/// @throws Error (input) as parse_timelines() and recorded_program(), for iterations that do not say what
/// their stages are and compute, and for another number of LLM layers than the model's.
PreparedSet prepare_recording(const std::string& path, const ModelSpec& model);

/// Predicts all rows of a set, on all cores.
std::vector<Prediction> predict(const PreparedSet& set, const ClusterSpec& cluster);

/// A RowMask says which rows a fit may look at, one flag for each row of each set.
using RowMask = std::vector<std::vector<bool>>;

/// Returns the cluster whose parameters minimise the robust sum of squares of log(predicted / measured) over
/// the rows of the mask, every set weighing the same whatever its rows, plus a weak pull towards the values
/// of `cluster` that decides what the rows leave open between several. A parameter whose value in `cluster`
/// serves the rows as well, to within two standard errors or 0.1 %, keeps exactly that one. One set of
/// parameters serves all rows. Predictions inside the fit are estimate()'s, at first as they are, then again
/// each multiplied by what the simulation differs by at the first result, and simulations for recorded
/// iterations; errors are reported of simulations.
ClusterSpec fit(const std::vector<PreparedSet>& sets, const RowMask& rows, const ClusterSpec& cluster,
                const ClusterNotes& notes = {});

/// A HeldOut has time errors of each row of each set, predicted by a fit that has not seen the row.
struct HeldOut {
  std::vector<std::vector<double>> errors;
};

/// Predicts each row by a fit without it: `fold[set][row]` numbers the part that is left out together with
/// the row. Fits once for each part, from the values of `cluster`. `progress` is told (parts done, parts).
HeldOut cross_validate(const std::vector<PreparedSet>& sets, const std::vector<std::vector<int>>& fold,
                       const ClusterSpec& cluster, const ClusterNotes& notes,
                       const std::function<void(int, int)>& progress);

/// Deals the rows of each set into `folds` parts of equal size to within one, at random by `seed`.
std::vector<std::vector<int>> random_folds(const std::vector<PreparedSet>& sets, int folds,
                                           std::uint64_t seed);

/// Makes one part for each model width, over all sets: errors of sizes that a fit has never seen.
std::vector<std::vector<int>> family_folds(const std::vector<PreparedSet>& sets);

}  // namespace dflop
