// Conditions say what happens in a simulated run besides its costs: pauses, failures, few cores, shared
// links. The last functions of this file change the costs themselves: stragglers, jitter, slow links.
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

/// A Pause is a time in which a group computes nothing. Its earlier sends and the other groups continue.
/// Pauses of one group may overlap, for example if two of its ranks pause.
struct Pause {
  static constexpr Nanoseconds kForever{std::numeric_limits<std::int64_t>::max()};

  std::int32_t group = 0;
  Nanoseconds start{0};
  Nanoseconds duration{0};  ///< kForever: the group has failed
};

struct Conditions {
  /// Messages and collectives share these links. Null: each takes the time given by ProgramCosts.
  const Network* network = nullptr;
  std::vector<Pause> pauses = {};  ///< in order of start
  /// Groups take turns to compute on this many cores (see CoreGate). Messages and collectives need no cores.
  /// 0: every rank has its own core.
  int cores = 0;
  /// Each group begins at this time, for example because it is still in the previous step. Empty: all begin
  /// at 0.
  std::vector<Nanoseconds> begins = {};
};

/// A ComputePiece is a part of a computation in which the group either computes or is paused throughout.
struct ComputePiece {
  Nanoseconds start{0};
  Nanoseconds end{0};
  bool paused = false;
};

/// A ComputeRun is the course of a computation under the conditions of its group.
struct ComputeRun {
  Nanoseconds end{0};       ///< when the computation is done, or when the group fails
  Nanoseconds computed{0};  ///< without pauses
  bool fails = false;       ///< the group fails before the computation is done
};

/// Runs `amount` of compute of a group from `start` on. Only this function defines how pauses and failures
/// affect compute. The exception is shared GPUs, where the end of a computation is not known in advance:
/// there SharedCompute defines it. If `pieces` is given, appends the run's pieces: in order, without gaps, at
/// least one. If the run fails, the appended pieces have no meaning.
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

/// Returns how long a group's compute is paused within [from, until).
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

/// With changed costs, neither an operation nor a whole run may take longer than this. It is far below the
/// 292 years that the engine's 64 bits of nanoseconds can hold.
inline constexpr Seconds kLongestRun{1e9};

/// Returns the group that a rank belongs to. @pre 0 <= rank < program.ranks()
std::int32_t group_of_rank(const Program& program, std::int32_t rank);

/// Multiplies the compute and optimizer times of a group by `factor`; the bytes they move stay the same.
/// There is one factor for a group, because its slowest rank sets its pace. @throws Error (usage) if an
/// operation would take longer than kLongestRun
void slow_down(ProgramCosts& costs, const Program& program, std::int32_t group, double factor);

/// Multiplies every instruction's duration by exp(sigma z - sigma² / 2), where z is standard normal. This
/// factor is log-normal and has mean 1. @throws what slow_down() throws
void add_jitter(ProgramCosts& costs, double sigma, Random& random);

/// Multiplies the bandwidths of groups by `bandwidth_factor` (above 0); groups that share a GPU all get the
/// smallest of their factors. A message is as slow as the slower of its ends, and a collective as slow as its
/// slowest participant. @throws what slow_down() throws
void slow_links(ProgramCosts& costs, const Program& program, const std::vector<double>& bandwidth_factor);

/// Makes messages and collectives take no time.
void free_communication(ProgramCosts& costs);

}  // namespace dflop
