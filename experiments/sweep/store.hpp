// Results of sweeps are kept on disk in an SQLite database with one row for each finished cell.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "experiments/sweep/row.hpp"
#include "experiments/sweep/spec.hpp"
#include "experiments/sweep/sqlite.hpp"
#include "traces/files/provenance.hpp"

namespace dflop {

/// A SweepStore is the database that a sweep writes to. Several sweeps, also of several processes, may share
/// one.
class SweepStore {
 public:
  /// Opens or makes the database, adds the spec to those that it holds, and `made_by` as what makes the cells
  /// that are recorded from now on. With `redo_changed` cells of inputs whose contents have changed are taken
  /// out, so that they are run again; all others stay.
  /// @throws Error (output) for a file that is no database or one of something else, that cannot be written,
  /// or whose cells were made by another version of dflop or, without `redo_changed`, from other contents of
  /// the spec's inputs.
  SweepStore(const std::string& file, const SweepSpec& spec, const Provenance& made_by,
             bool redo_changed = false);

  /// Returns how many cells were taken out because their inputs had changed.
  std::int64_t taken_out() const { return taken_out_; }

  /// Returns the keys of the cells that are finished, and with `with_failed` of those that have failed.
  std::set<std::string> finished(bool with_failed);

  /// Keeps one cell in place of an earlier result of it; when it returns, the cell is safe. From any thread.
  void record(const SweepRow& row);

 private:
  std::mutex mutex_;
  Database database_;
  std::int64_t run_ = 0;  ///< which of its runs this is
  std::int64_t taken_out_ = 0;
};

/// Reads all cells of several databases, in the order of their axes, each once.
/// @throws Error (input) for a file that is no sweep's, and where files contradict each other: in version or
/// inputs, or in the reproducible results of a cell.
std::vector<SweepRow> read_sweeps(const std::vector<std::string>& files);

}  // namespace dflop
