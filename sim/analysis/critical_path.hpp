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
  /// a compute or optimizer instruction, or its beginning, up to where an all_reduce_start took effect
  compute,
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
  /// of a message: its send; of a collective: all_reduce; of a pause: the op that it delayed
  Op op = Op::forward;
  std::uint16_t stage = 0;  ///< of the instruction in `group`
  std::uint16_t to_stage = 0;
  /// The link runs in this group. For a message it is the source, for a collective the last participant.
  std::int32_t group = 0;
  /// The path continues in this group. It is `group`, except after a message, a collective, or compute whose
  /// cores went to a different group.
  std::int32_t to_group = 0;
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
/// to its send. A collective starts when its last participant enters it, or when that participant's previous
/// collective ends. Times are integer nanoseconds, so these comparisons are exact. Compute that waited for
/// cores begins when another group's compute ends, and the path continues there. If several instructions or
/// transfers end at the same time, the path stays in its group if it can. Otherwise it takes the first
/// participant or, at the end of the run, the first group.
///
/// `timeline` must be the result of simulate(program, costs, Detail::spans, conditions), and
/// conditions.begins must be empty or 0, because the path begins at 0.
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

/// Returns the shares in order of stage, kind and operation. Messages count toward the stage that sends them.
std::vector<PathShare> path_shares(const std::vector<PathLink>& path);

}  // namespace dflop
