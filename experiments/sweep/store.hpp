// A SweepStore stores the results of sweeps in an SQLite database on disk, with one row for each finished
// cell.
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

/// A SweepStore is the database that a sweep writes to. Several sweeps may share one, even from several
/// processes.
class SweepStore {
 public:
  /// Opens or creates the database and adds the spec. `made_by` is the provenance of the cells that will be
  /// recorded. If `redo_changed`, removes the cells whose inputs have changed, so that they run again.
  /// @throws Error (output) for a file that is not a sweep's database or cannot be written, if another
  /// version of dflop made its cells, or if the spec's inputs have changed since and `redo_changed` is false
  SweepStore(const std::string& file, const SweepSpec& spec, const Provenance& made_by,
             bool redo_changed = false);

  /// Returns the number of cells removed because their inputs had changed.
  std::int64_t taken_out() const { return taken_out_; }

  /// Returns the keys (sweep_key()) of the finished cells. If `with_failed`, includes failed cells.
  std::set<std::string> finished(bool with_failed);

  /// Stores one cell and replaces its earlier result, if any. When record() returns, the cell is safe on
  /// disk. Any thread may call it.
  void record(const SweepRow& row);

 private:
  std::mutex mutex_;
  Database database_;
  std::int64_t run_ = 0;  ///< number of this run in the database
  std::int64_t taken_out_ = 0;
};

/// Reads the cells of several databases, without duplicates and in the order of their axes.
/// @throws Error (input) for a file that is not a sweep's database, and if the files differ in version, in
/// inputs or in the reproducible results of a cell
std::vector<SweepRow> read_sweeps(const std::vector<std::string>& files);

}  // namespace dflop
