// HostCores decide who of the host's ranks may compute, where they are more than the cores.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "backend/communicator.hpp"
#include "core/support/core_gate.hpp"
#include "core/units.hpp"

namespace dflop {

/// HostCores give tp groups their turns. A turn begins when all its ranks have asked for it and CoreGate
/// gives the group its cores, and ends when all have given them back. A group that has fewer cores than ranks
/// shares them among these, first come, first served: a rank that waits for the others, as in an all-reduce,
/// pauses.
///
/// Not to be used by several threads at once. Functions return the ranks that may go on by what they do at
/// this time.
class HostCores {
 public:
  using Ranks = std::vector<std::int32_t>;

  /// Makes free cores. @pre cores >= 1
  HostCores(int ranks, int cores);

  /// Makes the rank known, with its tp group, before it asks for anything.
  void join(int rank, const RankGroup& tp);

  /// Asks for a core in a turn of the group, and gives it back.
  Ranks ask(int rank, Nanoseconds now);
  Ranks give_back(int rank, Nanoseconds now);
  bool may_compute(int rank) const { return seat(rank).taken; }
  /// Returns when the group of the rank got its cores.
  Nanoseconds turn_began(int rank) const { return teams_[static_cast<std::size_t>(seat(rank).team)].began; }

  /// Returns whether another rank of the group could use the core of this one while it waits.
  bool can_pause(int rank) const;
  Ranks pause(int rank);
  Ranks resume(int rank);

 private:
  /// A Team is a tp group.
  struct Team {
    RankGroup ranks;
    std::size_t asking = 0;
    std::size_t at_work = 0;
    int free = 0;  // of its cores, in its turn
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
