// The critical path shows why a run took as long as it did.
#pragma once

#include <cstdint>
#include <vector>

#include "core/cost_model.hpp"
#include "core/names.hpp"
#include "core/program.hpp"
#include "core/timeline.hpp"
#include "sim/conditions.hpp"

namespace dflop {

enum class PathLinkKind : std::uint8_t {
  compute,     ///< a compute or optimizer instruction, or the part of it before a collective was entered
  message,     ///< from send to arrival
  collective,  ///< from its start to its end
  pause,       ///< pause of a group that had compute to do
};

template <>
inline constexpr NameTable<PathLinkKind, 4> kNames<PathLinkKind> = {{{PathLinkKind::compute, "compute"},
                                                                     {PathLinkKind::message, "message"},
                                                                     {PathLinkKind::collective, "collective"},
                                                                     {PathLinkKind::pause, "pause"}}};

/// A PathLink is one link of the critical path. Each link begins at the time and in the group where the
/// previous one ends.
struct PathLink {
  PathLinkKind kind = PathLinkKind::compute;
  Op op = Op::forward;      ///< of a message: its send; of a pause: the op that it delayed
  std::uint16_t stage = 0;  ///< of the instruction in `group`
  std::uint16_t to_stage = 0;
  std::int32_t group = 0;  ///< where it runs; of a message: the source; of a collective: its last participant
  std::int32_t to_group = 0;  ///< where the path continues; `group`, except for a message, a collective, or
                              ///< the end of compute whose cores went to another group
  std::int32_t microbatch = -1;
  Nanoseconds start{0};
  Nanoseconds duration{0};

  bool operator==(const PathLink&) const = default;
};

/// Returns the chain of instructions and transfers that leads from 0 to the makespan without a gap: the
/// durations of its links sum to the makespan.
///
/// The walk goes backwards from the group that ends last. An instruction begins when the previous one in its
/// group ends. A receive that waited ends when its message arrives, and the path continues over the message
/// to its send. A collective starts when its last participant enters it, or is done with the previous
/// collective. Times are integer nanoseconds, so these comparisons are exact. Compute that waited for cores
/// begins when another group's compute ends, and the path continues there. If several things end at the same
/// time, the path stays in its group if it can, and otherwise takes the first participant; of groups that end
/// together it takes the first.
///
/// `timeline` must be the result of simulate(program, costs, Detail::spans, conditions).
/// @throws Error (internal) if it is not, or if the run stalled.
std::vector<PathLink> critical_path(const Program& program, const ProgramCosts& costs,
                                    const Timeline& timeline, const Conditions& conditions = {});

/// A PathShare is the sum over all links of one kind, operation and stage.
struct PathShare {
  std::uint16_t stage = 0;
  PathLinkKind kind = PathLinkKind::compute;
  Op op = Op::forward;
  std::int64_t links = 0;
  Nanoseconds duration{0};

  bool operator==(const PathShare&) const = default;
};

/// Returns the shares in order of stage, kind and operation. Messages count for the stage that sends them.
std::vector<PathShare> path_shares(const std::vector<PathLink>& path);

}  // namespace dflop
