// Conditions are what a simulated run meets beside its costs: pauses, failures, few cores, shared links.
// The file also has what-if changes of costs: stragglers, jitter, slow links.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/cost_model.hpp"
#include "core/program.hpp"
#include "core/support/random.hpp"
#include "core/units.hpp"
#include "sim/network/network.hpp"

namespace dflop {

/// A Pause is a time in which a group computes nothing. What it has sent and what others do goes on. Pauses
/// of one group may overlap, as those of two of its ranks do.
struct Pause {
  static constexpr Nanoseconds kForever{std::numeric_limits<std::int64_t>::max()};

  std::int32_t group = 0;
  Nanoseconds start{0};
  Nanoseconds duration{0};  ///< kForever: the group has failed
};

struct Conditions {
  /// Messages and collectives share these links. Null: each takes what ProgramCosts says.
  const Network* network = nullptr;
  std::vector<Pause> pauses = {};  ///< in order of start
  /// Groups take turns to compute on so many cores, as CoreGate says; messages and collectives need none. 0:
  /// every rank has one.
  int cores = 0;
  /// By group: when it begins, as where it is still in the step before. Empty: all begin at 0.
  std::vector<Nanoseconds> begins = {};
};

/// A ComputePiece is a part of a computation in which the group computes all the time, or stands still.
struct ComputePiece {
  Nanoseconds start{0};
  Nanoseconds end{0};
  bool paused = false;
};

/// A ComputeRun says how a computation goes under the conditions of its group.
struct ComputeRun {
  Nanoseconds end{0};       ///< when it is done, or when the group fails
  Nanoseconds computed{0};  ///< without pauses
  bool fails = false;       ///< the group fails before it is done
};

/// Runs `amount` of compute of a group from `start` on. It is the place that knows what pauses and failures
/// do to compute; where GPUs are shared SharedCompute is, as there a computation has no end before it is
/// over. Appends the pieces of a run that does not fail to `pieces`, if given: in order, without gaps, at
/// least one.
inline ComputeRun run_compute(const Conditions& conditions, std::int32_t group, Nanoseconds start,
                              Nanoseconds amount, std::vector<ComputePiece>* pieces = nullptr) {
  Nanoseconds covered = start;  // by the pieces so far
  Nanoseconds end = start + amount;
  Nanoseconds computed{0};
  const auto add_piece = [&](Nanoseconds until, bool paused) {
    if (pieces != nullptr) pieces->push_back({covered, until, paused});
    if (!paused) computed += until - covered;
    covered = until;
  };
  for (const Pause& pause : conditions.pauses) {
    if (pause.group != group || pause.start >= end) continue;
    const bool fails = pause.duration == Pause::kForever;
    const Nanoseconds held = std::max(covered, pause.start);  // pauses may overlap
    const Nanoseconds until = fails ? Pause::kForever : pause.start + pause.duration;
    if (until <= held) continue;
    if (held > covered) add_piece(held, false);
    if (fails) return {std::max(start, pause.start), computed, true};
    add_piece(until, true);
    end += until - held;
  }
  if (end > covered || covered == start) add_piece(end, false);
  return {end, computed, false};
}

/// Returns for how long of [from, until) a group's compute stands still.
inline Nanoseconds paused_time(const Conditions& conditions, std::int32_t group, Nanoseconds from,
                               Nanoseconds until) {
  Nanoseconds covered = from;
  Nanoseconds sum{0};
  for (const Pause& pause : conditions.pauses) {
    if (pause.group != group || pause.start >= until) continue;
    const Nanoseconds end =
        pause.duration == Pause::kForever ? until : std::min(until, pause.start + pause.duration);
    if (end <= std::max(covered, pause.start)) continue;
    sum += end - std::max(covered, pause.start);
    covered = end;
  }
  return sum;
}

/// No operation under conditions, nor a run's together, may take longer: the engine counts nanoseconds in 64
/// bits, which are 292 years.
inline constexpr Seconds kLongestRun{1e9};

/// Returns the group that a rank belongs to. @pre 0 <= rank < program.ranks()
std::int32_t group_of_rank(const Program& program, std::int32_t rank);

/// Makes compute and optimizer steps of a group take `factor` times as long, in which they move as much as
/// before; the slowest rank sets the group's pace. @throws Error (usage): an operation would take longer than
/// kLongestRun
void slow_down(ProgramCosts& costs, const Program& program, std::int32_t group, double factor);

/// Multiplies every duration of an instruction by exp(sigma z - sigma² / 2), z standard normal: a log-normal
/// factor of mean 1. @throws Error as slow_down()
void add_jitter(ProgramCosts& costs, double sigma, Random& random);

/// Multiplies bandwidths of groups by `bandwidth_factor` (above 0), those of shared GPUs by the least of the
/// groups on them: a message takes as long as over the slower of its ends, a collective as long as its
/// slowest participant. @throws Error as slow_down()
void slow_links(ProgramCosts& costs, const Program& program, const std::vector<double>& bandwidth_factor);

/// Makes messages and collectives take no time.
void free_communication(ProgramCosts& costs);

}  // namespace dflop
