// Communication between rank threads of one process.
#pragma once

#include <memory>

#include "backend/communicator.hpp"
#include "backend/compute_turn.hpp"
#include "core/units.hpp"

namespace dflop {

class HostRun;

/// Made once a run, and shared by its rank threads. Communicators may outlive it.
///
/// Calls return when their work is done, as the streams of a host device do: a send copies the data and does
/// not wait for its receiver, everything else waits for its partners. Sums are taken in the group's order,
/// f32 and f64 in their own precision, bf16 in f32 and rounded once, and so have the same bits in every run.
///
/// Beside what Communicator says: a receive with other bytes than were sent, or a collective with another
/// operation, element or count than its group's first rank, is an Error (internal) that names both and ends
/// the run for all. So does a rank that waits longer than the timeout.
///
/// A rank that ends early, by an exception too, does not end the run: who waits for it does so until the
/// timeout. So whoever catches a rank's failure says why by abort() before its communicator goes.
class HostWorld {
 public:
  /// `cores`: that compute at a time; 0: every rank when it likes.
  /// @throws Error (internal) without ranks, for negative cores, or for a timeout that is not positive or
  /// over a year.
  HostWorld(int ranks, Seconds timeout, int cores = 0);

  /// The end of one rank; asked for once a rank, from any thread. The rank has ended when it is destroyed.
  /// @throws Error (internal) for a rank that is not there or has one already.
  std::unique_ptr<Communicator> communicator(int rank);

  /// The turns of one rank of a tp group; asked for by all of its ranks before any of them begins one. None
  /// where all ranks have cores at once.
  std::unique_ptr<ComputeTurn> turn(int rank, const RankGroup& tp);

 private:
  std::shared_ptr<HostRun> run_;
};

}  // namespace dflop
