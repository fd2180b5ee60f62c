// Orders that are those of a greedy run in virtual time.
#pragma once

#include <vector>

#include "core/schedules.hpp"

namespace dflop {

/// The steps of every rank of a pipeline whose backwards are split into input and weight parts, in the order
/// in which a greedy run in virtual time starts them.
///
/// A free rank starts the input part of a backward if one is ready, else a forward, else a weight part; the
/// oldest microbatch first, and it waits only if it has none of them. Each stage takes its microbatches in
/// order. A rank holds at most `most_held` (at least shape.chunks) chunks of microbatches, from the start of
/// their forward to the end of their weight part; a forward leaves one of these free for each later chunk
/// of the rank, so that the oldest microbatch can always go on.
std::vector<std::vector<ScheduleStep>> greedy_steps(const PipelineShape& shape, const StepTimes& times,
                                                    int most_held);

/// The steps of every rank of an encoder_in_bubbles shape, whose ranks run `fixed` (on stages 1 and up) in
/// this order, and beside them their encoder microbatches where they would idle: a free rank starts its next
/// fixed step if that is ready, else an encoder forward, for which the others wait, else an encoder backward;
/// each in the order of microbatches. It holds at most tables.most_held encoder microbatches (at least 1),
/// from the start of their forward to the end of their backward.
///
/// What fills a hole may end after it, so that even this can be slower than no filling at all. Where it is,
/// the order is that of all encoder forwards before `fixed` and all backwards after it, as far as the limits
/// let them.
///
/// It always ends where `fixed` is 1f1b: the next gradient that stage 1 waits for needs the forwards of at
/// most `ranks` microbatches that follow each other, which are one on each rank.
std::vector<std::vector<ScheduleStep>> bubble_steps(const PipelineShape& shape, const ScheduleTables& tables,
                                                    const std::vector<std::vector<ScheduleStep>>& fixed);

}  // namespace dflop
