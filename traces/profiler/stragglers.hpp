// This file finds stragglers: among ranks that do the same work, those that the others wait for.
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

/// A KinetoStraggler is a rank for which others wait. Fractions are fractions of the total time of all steps.
struct KinetoStraggler {
  std::size_t trace = 0;
  double compute_ratio = 1;  ///< its compute time in a step relative to the median of all ranks
  double idle = 0;           ///< fraction of its steps in which its device is idle
};

/// KinetoStragglers are the ranks that the others wait for, sorted by their own wait, least first.
struct KinetoStragglers {
  std::vector<KinetoStraggler> ranks;
  bool hidden = false;     ///< whether waits hidden behind a rank's own compute count
  std::size_t others = 0;  ///< number of ranks that wait for them
  double median_idle = 0;  ///< of all ranks
  /// How much longer the others wait than the first straggler, as a fraction of their steps. A rank waits
  /// while a collective waits for missing ranks and (unless `hidden`) the rank computes nothing.
  double others_wait_more = 0;
};

/// A rank is a straggler only if the others wait for it for at least this fraction of their steps.
inline constexpr double kMinStraggling = 0.05;

/// Returns why ranks cannot be compared because they do different work: they send each other messages, or
/// have ranges of different stages. Returns nullopt if ranks can be compared.
std::optional<std::string> why_not_compared(const std::vector<KinetoTrace>& traces);

/// Returns the stragglers: the ranks that wait little in shared collectives while the others wait long. Their
/// wait is closer to the shortest than to the longest wait of a rank. If this applies to more than half of
/// the ranks, they are normal, and the waiting ranks are merely fast or have less work. Then the only
/// straggler is the rank that waits least, if all others wait at least kMinStraggling more. Returns none if
/// the waits of ranks increase gradually, as noise causes, or if ranks cannot be compared. Ranks without
/// device activities are left out. If no rank has device activities, `steps` give the times of ranges and the
/// waits in reductions. With `hidden`, all waits of collectives count; only a replay tells whether they cost
/// anything.
KinetoStragglers find_stragglers(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks,
                                 const std::vector<PipelineStep>& steps, bool hidden = false);

/// Returns stragglers like find_stragglers(), but exactly the ranks of the traces in `kept`. All other ranks
/// count as waiting for them. `found` says whether hidden waits count.
KinetoStragglers stragglers_of(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks,
                               const std::vector<PipelineStep>& steps, const KinetoStragglers& found,
                               const std::vector<std::size_t>& kept);

/// Returns a text such as "rank 5 computes 1.40 x the median; the other 7 ranks wait 27.1 % of their steps
/// for it".
/// @param index  of the straggler
std::string describe(const KinetoStragglers& stragglers, std::size_t index,
                     const std::vector<KinetoTrace>& traces);

/// A KinetoWaiting describes ranks that wait for each other while no single rank is late in all steps.
struct KinetoWaiting {
  double waits = 0;                    ///< wait as a fraction of the steps of the waiting ranks
  std::vector<KinetoStraggler> ranks;  ///< the waiting ranks, if they are at most half of all
  std::vector<std::pair<std::int64_t, std::size_t>>
      late_rank;  ///< by step number: the trace that all others wait for
};

/// Returns how ranks wait for each other. Returns nullopt if they wait for less than kMinStraggling of their
/// steps, or if find_stragglers() cannot compare them.
/// @pre there are no stragglers
std::optional<KinetoWaiting> find_waiting(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks,
                                          const std::vector<PipelineStep>& steps);

/// Returns a text such as "the ranks wait 24.1 % of their steps for each other, and no single rank is behind
/// it: ...", or "rank 0 waits 28.6 % of its steps for the others, ...".
std::string describe(const KinetoWaiting& waiting, const std::vector<KinetoTrace>& traces);

}  // namespace dflop
