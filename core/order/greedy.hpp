// These orders are those of a greedy run in virtual time.
#pragma once

#include <vector>

#include "core/order/pipeline_order.hpp"

namespace dflop {

/// Returns the steps of every rank of a zb-v shape without leading stages, in the order in which the shorter
/// of two runs in virtual time starts them. In both a rank holds at most 2 ranks chunks of microbatches, from
/// the start of their forward to the end of their weight part, and each stage takes its microbatches in
/// order.
///
/// Oldest first: a free rank starts the input part of a backward if one is ready, else a forward, else a
/// weight part; the oldest microbatch first, and it waits only if it has none of them. A forward leaves room
/// for each later chunk of the rank, so that the oldest microbatch can always go on.
///
/// In rhythm, which is taken where both are equally long. With p ranks, F0 and F1 the forwards of a rank's
/// two chunks, B1 and B0 their input parts, rank r runs
///   forwards   2 (p - r) - 1 of F0, r times F1 and F0, p - r of F1, then F0 and F1 in turn;
///   backwards  p - r of B1, then B0 and B1 in turn;
/// and merges them: its next forward if that is ready, for which it makes room with a weight part; else its
/// next input part; else a weight part. With equal steps and m >= 2p - 1 microbatches no rank pauses between
/// its first and its last step, as in ZB-V (Qi et al. 2023): in units of a step
///   * the first F0 comes down the V and up again in time for rank r to run 2p forwards from r on; then its
///     memory is full, and its first B1 is ready: F1 up a rank a unit, B1 down again;
///   * from then on it runs a backward, its weight part, a forward, every 3 units. F1 go on alone until p of
///     them have ended, B1 until 5p - 2r, when the first B0 comes, up the ranks every 2 units;
///   * after its last F0 a rank has a forward less in each turn. B0, which can come up the ranks every unit
///     too, go ahead to fill that, and weight parts, which now leave memory enough, wait for the end.
/// It ends whatever the times: the rhythm without an end is a run of 3 units a turn that keeps all of these
/// orders and limits, so they have no cycle, and neither have those among the first m microbatches.
std::vector<std::vector<OrderStep>> zb_v_steps(const PipelineShape& shape, const StepTimes& times);

/// Returns the steps of every rank of an encoder_in_bubbles shape, whose ranks run `fixed` (on stages 1 and
/// up) in this order, and beside them their encoder microbatches where they would idle: a free rank starts
/// its next fixed step if that is ready, else an encoder forward, for which the others wait, else an encoder
/// backward; each in the order of microbatches. It holds at most tables.most_held encoder microbatches (at
/// least 1), from the start of their forward to the end of their backward.
///
/// What fills a hole may end after it, so that even this can be slower than no filling at all. Where it is,
/// the order is that of all encoder forwards before `fixed` and all backwards after it, as far as the limits
/// let them.
///
/// It always ends where `fixed` is 1f1b: the next gradient that stage 1 waits for needs the forwards of at
/// most `ranks` microbatches that follow each other, which are one on each rank.
std::vector<std::vector<OrderStep>> bubble_steps(const PipelineShape& shape, const OrderTables& tables,
                                                 const std::vector<std::vector<OrderStep>>& fixed);

}  // namespace dflop
