// These functions order whole microbatches of each dp rank for the makespan, as published systems do.
#pragma once

#include <cstdint>
#include <vector>

#include "solver/assignment_problem.hpp"

namespace dflop {

/// A ReplicaRun runs a pipeline with one dp rank, as if all dp ranks had microbatches like this rank's. Work
/// that the dp ranks share then takes as long as this rank's part of it times their number.
class ReplicaRun {
 public:
  /// `bin` has the bin of each item. The problem must outlive the run.
  /// @pre the problem has a pipeline
  ReplicaRun(const AssignmentProblem& problem, const std::vector<std::int32_t>& bin);

  /// Returns the makespan, in seconds, of an iteration of dp rank `rank` with only these microbatches, in
  /// this order.
  double makespan(int rank, const std::vector<std::int32_t>& microbatches);

  /// Runs the same iteration, and returns how long the first pipeline rank waits before its backward of the
  /// microbatch at this position, counted from the end of its previous backward or, at position 0, of its
  /// forward of the first microbatch. Forwards between the two count as waiting.
  /// @pre has_intervals()
  double interval(int rank, const std::vector<std::int32_t>& microbatches, int position);

  /// Returns the duration of the forward of a microbatch on the first pipeline rank.
  /// @pre has_intervals()
  double forward(int rank, std::int32_t microbatch) const;

  /// Returns whether the first pipeline rank runs one forward and one backward of each microbatch.
  bool has_intervals() const { return has_intervals_; }

  /// Returns how many forwards the first pipeline rank runs before its first backward.
  int warm_up() const { return warm_up_; }

 private:
  double load(int load, int rank, std::int32_t microbatch) const {
    return table_[load][microbatch * dp_ + rank];
  }
  double time(const LoadTime& time, int rank, std::int32_t microbatch) const {
    return time.scale == 0 ? time.fixed_s : time.at(load(time.load, rank, microbatch));
  }
  void run(int rank, const std::vector<std::int32_t>& microbatches);
  void find_first_rank_steps();

  const LoadPipeline& pipeline_;
  int dp_;
  LoadTable table_;           // [load][bin]
  std::vector<double> ends_;  // per step
  std::vector<double> last_;  // per rank
  /// These are the steps of the first rank's forward and backward of each microbatch.
  std::vector<std::int32_t> forwards_;
  std::vector<std::int32_t> backwards_;
  bool has_intervals_ = true;
  int warm_up_ = 0;
};

/// Puts bins in the order of DistTrain's algorithm for 1f1b. For each dp rank, the microbatch with the
/// shortest forward on the first pipeline rank comes first, and the p - 1 next shortest come last, the
/// shortest of all of them at the end, if the first rank runs p forwards before its first backward. The other
/// microbatches fill the intervals in which the first rank waits for gradients: the first interval gets, of
/// all sequences of p - 1 microbatches that are adjacent in size, the one whose sum is nearest to it, and
/// each later interval gets the microbatch that is nearest. In orders in which the first rank runs more than
/// one forward or backward of a microbatch, the bins are arranged by arrange_bins().
///
/// This follows a description from memory, because the paper's text (arXiv 2408.04275) was not read.
void fill_intervals(const AssignmentProblem& problem, std::vector<std::int32_t>& bin);

/// Puts bins in the order of Maestro's algorithm (arXiv 2605.10501). For each dp rank, it takes the
/// microbatches in increasing order of encoder time and inserts each at the position where the makespan of
/// the microbatches so far is smallest; of equally good positions, at the last.
void insert_in_order(const AssignmentProblem& problem, std::vector<std::int32_t>& bin);

}  // namespace dflop
