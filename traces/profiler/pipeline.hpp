// Ranges and messages of PyTorch-profiler traces become timelines of a pipeline, which can be replayed.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "core/timeline.hpp"
#include "traces/profiler/check.hpp"
#include "traces/profiler/kineto.hpp"
#include "traces/profiler/ranks.hpp"

namespace dflop {

/// A PipelineStep is a step that all ranks have, with all that happened in it in its place.
struct PipelineStep {
  std::int64_t number = 0;  ///< of ProfilerStep#N; 0 without such marks
  Timeline timeline;
  std::int64_t messages = 0;
  std::int64_t known = 0;  ///< of them: the receiver was already waiting when they came
  Nanoseconds typical{0};  ///< median transfer of those
  Nanoseconds longest{0};
  std::set<std::vector<std::int32_t>> joint =
      {};  ///< ranks that meet inside forwards, as of tensor parallelism
};

struct PipelineImport {
  std::vector<PipelineStep> steps;      ///< rising; those alone in which everything has its place
  std::vector<KinetoFinding> findings;  ///< what has none, and why a step is left out
  /// Of ranges: so long, at most, ranks are in a step while others are in the one before it.
  Nanoseconds overlap{0};
};

/// Tells whether any trace has ranges of a pipeline's steps.
bool has_pipeline_ranges(const std::vector<KinetoTrace>& traces);

/// Makes timelines of the host's ranges: a group for each rank, compute from its ranges, messages from the
/// calls of c10d::send and c10d::recv_ or, where these are not recorded, from the ranges of sends and
/// receives. A message belongs to the range around it, else to the forward or backward before a send and
/// after a receive; its ends are joined by direction, microbatch, tag, bytes and the ranks of their process
/// group.
///
/// A receive ends when it is waited for, and not when the data came. So an arrival is known only where the
/// receiver was already waiting; elsewhere the message takes as long as is typical of those that are known,
/// and arrives no later than its receive has ended.
///
/// Where ranks begin steps before others have ended the one before, by a notable part of a step, a rank's
/// step begins where its own step before it ended, and the makespan is from the last rank's end of the
/// step before to the last rank's end of this one, so that no time counts twice.
///
/// What a rank does between ranges counts to the range that follows, unless it waits. Memory, shapes of
/// stages and bytes of reductions are not recorded.
///
/// Every rank needs a trace, with every forward's backward and both ends of every message: a step that lacks
/// one is left out, with a finding.
PipelineImport import_pipeline(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks);

}  // namespace dflop
