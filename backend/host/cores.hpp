// HostCores decide which of the host's ranks may compute when there are more ranks than cores.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "backend/communicator.hpp"
#include "core/support/core_gate.hpp"
#include "core/units.hpp"

namespace dflop {

/// HostCores give tp groups turns to compute. A turn begins when all ranks of the group have called ask()
/// and CoreGate has given the group its cores. It ends when all ranks have called give_back(). If a group
/// has fewer cores than ranks, its ranks share the cores first come, first served. A rank that waits for
/// others, for example in an all-reduce, calls pause() so that another rank of its group can use the core,
/// and later resume().
///
/// HostCores are not thread-safe. Functions that return Ranks return the ranks that may compute now because
/// of the call.
class HostCores {
 public:
  using Ranks = std::vector<std::int32_t>;

  /// Begins with all cores free. @pre cores >= 1
  HostCores(int ranks, int cores);

  /// Registers a rank and its tp group. Call it before the rank's other calls.
  void join(int rank, const RankGroup& tp);

  /// ask() requests a core for the rank in the next turn of its group; give_back() returns the core.
  Ranks ask(int rank, Nanoseconds now);
  Ranks give_back(int rank, Nanoseconds now);
  bool may_compute(int rank) const { return seat(rank).taken; }
  /// Returns the time at which the latest turn of the rank's group began.
  Nanoseconds turn_began(int rank) const { return teams_[static_cast<std::size_t>(seat(rank).team)].began; }

  /// Returns whether the rank has a core that another rank of its group could use while this rank waits.
  bool can_pause(int rank) const;
  Ranks pause(int rank);
  Ranks resume(int rank);

 private:
  /// A Team is a tp group.
  struct Team {
    RankGroup ranks;
    std::size_t asking = 0;
    std::size_t at_work = 0;
    int free = 0;  // free cores of the group during its turn
    std::deque<std::int32_t> waiting;
    Nanoseconds began{0};
  };
  /// A Seat is a rank's place in its team.
  struct Seat {
    std::int32_t team = -1;
    bool taken = false;
  };

  Seat& seat(int rank) { return seats_[static_cast<std::size_t>(rank)]; }
  const Seat& seat(int rank) const { return seats_[static_cast<std::size_t>(rank)]; }
  Team& team_of(int rank) { return teams_[static_cast<std::size_t>(seat(rank).team)]; }
  void leave_seat(int rank);
  Ranks fill(Team& team);
  Ranks admit(Nanoseconds now);

  CoreGate gate_;
  std::vector<Seat> seats_;
  std::vector<Team> teams_;
  std::map<std::vector<std::int32_t>, std::int32_t> team_of_ranks_;
};

}  // namespace dflop
