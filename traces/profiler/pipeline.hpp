// This file turns the ranges and messages of PyTorch-profiler traces into timelines of a pipeline, which can
// be replayed.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "core/timeline.hpp"
#include "traces/profiler/check.hpp"
#include "traces/profiler/kineto.hpp"
#include "traces/profiler/ranks.hpp"

namespace dflop {

/// A PipelineStep is a step recorded on all ranks, as a timeline in which every event has its place.
struct PipelineStep {
  std::int64_t number = 0;  ///< N of ProfilerStep#N; 0 if steps are not marked
  Timeline timeline;
  std::int64_t messages = 0;
  std::int64_t known = 0;  ///< messages that arrived while their receiver was waiting
  Nanoseconds typical{0};  ///< median transfer time of the known messages
  Nanoseconds longest{0};
  std::set<std::vector<std::int32_t>> joint =
      {};  ///< ranks that meet inside forwards, as in tensor parallelism
};

struct PipelineImport {
  std::vector<PipelineStep> steps;      ///< rising; only steps in which every event has its place
  std::vector<KinetoFinding> findings;  ///< events without a place, and why a step is left out
  /// The max time for which, according to ranges, some ranks are in a step while others are still in the
  /// previous step.
  Nanoseconds overlap{0};
};

/// Tells whether any trace has ranges of a pipeline's steps.
bool has_pipeline_ranges(const std::vector<KinetoTrace>& traces);

/// Makes timelines from the host's ranges. Each rank is a group. Its ranges give the compute. Its calls of
/// c10d::send and c10d::recv_ give the messages or, if these calls are not recorded, the ranges of sends and
/// receives do. A message belongs to the range around it, else to the forward or backward before a send or
/// after a receive. Its two ends are matched by direction, microbatch, tag, bytes and the ranks of their
/// process group.
///
/// A receive ends when somebody waits for it, not when the data arrive. So an arrival is known only if the
/// receiver was already waiting. Any other message takes the typical time of the messages with known
/// arrivals, and arrives no later than the end of its receive.
///
/// Some ranks may begin a step notably before others end the previous step. Then each rank's step begins at
/// the end of its own previous step, and the makespan lasts from the last rank's end of the previous step to
/// the last rank's end of this step, so that no time counts twice.
///
/// A rank's time between ranges counts toward the following range, unless the rank waits. Memory, shapes of
/// stages and bytes of reductions are not recorded.
///
/// Every rank needs a trace with the backward of every forward and both ends of every message. A step that
/// lacks one is left out, with a finding.
PipelineImport import_pipeline(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks);

}  // namespace dflop
