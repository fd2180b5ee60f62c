// A list scheduler for pipelines whose backwards are split into input and weight parts.
#pragma once

#include <vector>

#include "core/schedules.hpp"

namespace dflop {

/// The steps of every rank, in the order in which a greedy run in virtual time starts them.
///
/// A free rank starts the input part of a backward if one is ready, else a forward, else a weight part; the
/// oldest microbatch first, and it waits only if it has none of them. Each stage takes its microbatches in
/// order. A rank holds at most `most_held` (at least shape.chunks) chunks of microbatches, from the start of
/// their forward to the end of their weight part; a forward leaves one of these free for each later chunk
/// of the rank, so that the oldest microbatch can always go on.
std::vector<std::vector<ScheduleStep>> greedy_steps(const PipelineShape& shape, const StepTimes& times,
                                                    int most_held);

}  // namespace dflop
