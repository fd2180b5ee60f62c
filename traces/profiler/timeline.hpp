// PyTorch-profiler traces as timelines.
#pragma once

#include <vector>

#include "core/timeline.hpp"
#include "traces/profiler/kineto.hpp"
#include "traces/profiler/ranks.hpp"

namespace dflop {

/// One timeline per step that all ranks have, in the order of step numbers; one group per rank, in the order
/// of ranks, on the aligned clock.
///
/// The compute stream of a rank is the one with the most compute time. Its contiguous kernels of one phase
/// become one span (forward, backward, optimizer_step), numbered within the step as microbatch; kernels of no
/// known phase end a span and make none. Messages whose direction is known become send and receive spans, all
/// other communication all_reduce spans, which begin no earlier than the one before them ends. Spans end with
/// the step. Of the usage, busy is the time of compute kernels on all streams, wait the communication outside
/// of it, bubble the rest of the makespan, transfer the time with any communication; memory is not recorded.
/// @throws Error (input) where there are no steps with kernels, a trace has no rank, or two have the same.
std::vector<Timeline> to_timelines(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks);

}  // namespace dflop
