// Ranks that do the same wait for the slowest of them: which that is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "traces/profiler/kineto.hpp"
#include "traces/profiler/ranks.hpp"

namespace dflop {

struct PipelineStep;

/// A KinetoStraggler is a rank for which others wait. Parts are of steps, all together.
struct KinetoStraggler {
  std::size_t trace = 0;
  double compute_ratio = 1;  ///< its compute time in a step over the median of all ranks
  double idle = 0;           ///< part of its steps in which nothing runs on its device
};

/// KinetoStragglers are the ranks for which the others wait, that which waits least first.
struct KinetoStragglers {
  std::vector<KinetoStraggler> ranks;
  bool hidden = false;     ///< whether waiting counts that goes on behind a rank's own compute
  std::size_t others = 0;  ///< ranks that wait for them
  double median_idle = 0;  ///< of all ranks
  /// This part of the others' steps, beyond that of the first straggler's, a collective waits for ranks that
  /// are not there yet, and, unless it is hidden, they compute nothing.
  double others_wait_more = 0;
};

/// From this part of the others' steps on a rank is a straggler.
inline constexpr double kLeastStraggling = 0.05;

/// Returns why ranks cannot be compared, as they do not do the same: they send each other messages, or have
/// ranges of different stages. Nothing where they can.
std::optional<std::string> why_not_compared(const std::vector<KinetoTrace>& traces);

/// Returns the ranks that wait less than half as long, beyond the least, as any rank does in the collectives
/// that they share, where the others wait for more. Where that is more than half of the ranks it is the one
/// that waits least, if all others wait by kLeastStraggling more: else these are as ranks usually are, and
/// those that wait are fast or have less to do. None where ranks wait the one a little more than the other,
/// as by noise, or where they cannot be compared. Ranks without activities of a device are left out; where
/// none has any, `steps` say what their ranges took and how long they waited in reductions. With `hidden`,
/// waits are all those of collectives: whether they cost anything, only a replay tells.
KinetoStragglers find_stragglers(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks,
                                 const std::vector<PipelineStep>& steps, bool hidden = false);

/// Returns the stragglers without all but these traces, for which all other ranks wait then.
KinetoStragglers stragglers_of(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks,
                               const std::vector<PipelineStep>& steps, const KinetoStragglers& found,
                               const std::vector<std::size_t>& kept);

/// Returns "rank 5 computes 1.40 x the median; the other 7 ranks wait 27.1 % of their steps for it".
/// @param index  of the straggler
std::string describe(const KinetoStragglers& stragglers, std::size_t index,
                     const std::vector<KinetoTrace>& traces);

/// A KinetoWaiting says that ranks wait for each other without one that is behind it in all steps.
struct KinetoWaiting {
  double waits = 0;                    ///< part of the steps of those that wait
  std::vector<KinetoStraggler> ranks;  ///< that wait, where they are half of all or fewer
  std::vector<std::pair<std::int64_t, std::size_t>>
      late_rank;  ///< by step number: the trace that all wait for
};

/// Returns how ranks wait from kLeastStraggling of their steps on; nothing where find_stragglers() looks for
/// none.
/// @pre there are no stragglers
std::optional<KinetoWaiting> find_waiting(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks,
                                          const std::vector<PipelineStep>& steps);

/// Returns "the ranks wait 24.1 % of their steps for each other, and no single rank is behind it: ...", or
/// "rank 0 waits 28.6 % of its steps for the others, ...".
std::string describe(const KinetoWaiting& waiting, const std::vector<KinetoTrace>& traces);

}  // namespace dflop
