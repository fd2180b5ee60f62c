// This file calibrates a GPU type: it fits parameters to measured iterations, and estimates how well the fit
// predicts rows that it has not seen.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "experiments/checks/published/validation.hpp"
#include "traces/files/cluster_notes.hpp"

namespace dflop {

/// A FitParameter is one number of a cluster that can be fitted to measurements.
struct FitParameter {
  std::string key;  ///< in the cluster file
  std::function<double(const ClusterSpec&)> get;
  std::function<void(ClusterSpec&, double)> set;
  double lower = 0;  ///< > 0
  double upper = 0;
};

/// Returns all parameters that are fitted if any row depends on them, with bounds around the values of
/// `cluster`. Bandwidths are also bounded by the line rates of `notes`. docs/calibration.md lists the formula
/// in which each parameter is used.
std::vector<FitParameter> fit_parameters(const ClusterSpec& cluster, const ClusterNotes& notes = {});

/// A PreparedSet is a truth set with lowered programs, shared by all predictions.
struct PreparedSet {
  TruthSet set;
  std::vector<TruthCase> runs;
  std::vector<Program> programs;
  std::vector<Program> skeletons;  ///< empty for recorded iterations, whose microbatches are not equal

  bool is_recording() const { return skeletons.empty(); }
};

PreparedSet prepare(TruthSet set);

/// Prepares the iterations of a recorded training run of `model`, simulated or live. Each iteration becomes a
/// row whose measured time is the iteration's makespan. Each rank is assumed to have had its own GPU. `path`
/// names a timeline file.
/// @throws what parse_timelines() and recorded_program() throw; Error (input) for iterations without shapes
/// of stages and work, and for a number of LLM layers that differs from the model's.
PreparedSet prepare_recording(const std::string& path, const ModelSpec& model);

/// Predicts all rows of a set, on all cores.
std::vector<Prediction> predict(const PreparedSet& set, const ClusterSpec& cluster);

/// A RowMask selects the rows that a fit uses, with one flag for each row of each set.
using RowMask = std::vector<std::vector<bool>>;

/// Returns the cluster whose parameters minimize the robust sum of squares of log(predicted / measured) over
/// the selected rows. Every set has the same weight, regardless of its number of rows. If several values fit
/// the rows equally well, a weak pull toward the values of `cluster` decides. A parameter keeps its value in
/// `cluster` exactly if that fits the rows as well, to within two standard errors or 0.1 %. One set of
/// parameters serves all rows. Inside the fit, predictions come from estimate(): first unchanged, then
/// multiplied by the ratio to the simulation at the first result. Recorded iterations are always simulated,
/// and reported errors come from simulations.
ClusterSpec fit(const std::vector<PreparedSet>& sets, const RowMask& rows, const ClusterSpec& cluster,
                const ClusterNotes& notes = {});

/// A HeldOut holds the time error of each row of each set, predicted by a fit that did not include the row.
struct HeldOut {
  std::vector<std::vector<double>> errors;
};

/// Predicts each row by a fit without it. `fold[set][row]` is the number of the row's fold; each fold is left
/// out as a whole. Fits once for each fold, starting from the values of `cluster`. `progress` is called with
/// (folds done, folds).
HeldOut cross_validate(const std::vector<PreparedSet>& sets, const std::vector<std::vector<int>>& fold,
                       const ClusterSpec& cluster, const ClusterNotes& notes,
                       const std::function<void(int, int)>& progress);

/// Divides the rows of each set at random, by `seed`, into `folds` folds whose sizes differ by at most one.
std::vector<std::vector<int>> random_folds(const std::vector<PreparedSet>& sets, int folds,
                                           std::uint64_t seed);

/// Makes one fold for each model width, over all sets. The errors are therefore for sizes that a fit has
/// never seen.
std::vector<std::vector<int>> family_folds(const std::vector<PreparedSet>& sets);

}  // namespace dflop
