// This file calibrates a GPU type: it fits parameters of a cluster to measured iterations, and estimates how
// well the fit predicts unseen measurements.
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
  std::string key;  ///< name in the cluster file
  std::function<double(const ClusterSpec&)> get;
  std::function<void(ClusterSpec&, double)> set;
  double lower = 0;  ///< > 0
  double upper = 0;
};

/// Returns all parameters that can be fitted. A fit adjusts those that its rows depend on. Bounds lie around
/// the values of `cluster`; the line rates of `notes` also limit bandwidths. docs/calibration.md lists the
/// formula that uses each parameter.
std::vector<FitParameter> fit_parameters(const ClusterSpec& cluster, const ClusterNotes& notes = {});

/// A PreparedSet is a set of measured iterations with their lowered programs, which all predictions share.
struct PreparedSet {
  TruthSet set;
  std::vector<TruthCase> runs;
  std::vector<Program> programs;
  /// For estimate(); empty for recorded iterations, whose microbatches differ.
  std::vector<Program> skeletons;

  bool is_recording() const { return skeletons.empty(); }
};

PreparedSet prepare(TruthSet set);

/// Prepares the iterations of a recorded training run of `model`, simulated or live. Each iteration becomes a
/// row, and its makespan the measured time. Assumes that each rank had its own GPU. `path` is a timeline
/// file.
/// @throws Error (input) for iterations without shapes of stages and work, and if the recording's number of
/// LLM layers differs from the model's; what parse_timelines() and recorded_program() throw
PreparedSet prepare_recording(const std::string& path, const ModelSpec& model);

/// Predicts all rows of a set, in parallel on all cores.
std::vector<Prediction> predict(const PreparedSet& set, const ClusterSpec& cluster);

/// A RowMask selects the rows that a fit uses, with one flag for each row of each set.
using RowMask = std::vector<std::vector<bool>>;

/// Returns the cluster whose parameters minimize the robust sum of squares of log(predicted / measured) over
/// the selected rows. Every set has the same weight, regardless of its number of rows. If several values fit
/// the rows equally well, a weak pull toward the values of `cluster` decides. A parameter keeps its exact
/// value in `cluster` unless a different value fits the rows clearly better: by more than two standard
/// errors, and beyond errors of 0.1 %. The same parameters apply to all rows. The fit runs twice: first with
/// predictions of estimate(), then with estimates times the ratio of simulation to estimate at the first
/// result. Recorded iterations are always simulated, and reported errors come from simulations.
ClusterSpec fit(const std::vector<PreparedSet>& sets, const RowMask& rows, const ClusterSpec& cluster,
                const ClusterNotes& notes = {});

/// A HeldOut holds the errors of predicted times for each row of each set, from a fit without the row.
struct HeldOut {
  std::vector<std::vector<double>> errors;
};

/// Cross-validates: for each fold, fits all other rows, starting from the values of `cluster`, and predicts
/// the rows of the fold. `fold[set][row]` is the number of the row's fold. `progress` is called with
/// (finished folds, all folds).
HeldOut cross_validate(const std::vector<PreparedSet>& sets, const std::vector<std::vector<int>>& fold,
                       const ClusterSpec& cluster, const ClusterNotes& notes,
                       const std::function<void(int, int)>& progress);

/// Divides the rows of each set at random, by `seed`, into `folds` folds whose sizes differ by at most one.
std::vector<std::vector<int>> random_folds(const std::vector<PreparedSet>& sets, int folds,
                                           std::uint64_t seed);

/// Makes one fold for each model width, across all sets. The held-out errors are therefore for model sizes
/// that the fit has not seen.
std::vector<std::vector<int>> family_folds(const std::vector<PreparedSet>& sets);

}  // namespace dflop
