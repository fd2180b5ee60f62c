// These functions find the zb-v and encoder-in-bubbles orders by simulating a greedy run in virtual time.
#pragma once

#include <vector>

#include "core/order/pipeline_order.hpp"

namespace dflop {

/// Returns the steps of every rank of a zb-v shape without leading stages. It runs two strategies in virtual
/// time and returns the order of the shorter run. In both, each stage takes its microbatches in order. A rank
/// holds at most 2 * ranks microbatches, counting a microbatch once for each of its two chunks, each from the
/// start of its forward to the end of its weight part.
///
/// Oldest first: a free rank starts the input part of a backward if one is ready, otherwise a forward,
/// otherwise a weight part. It prefers the oldest microbatch, and waits only if none of these is ready. A
/// forward leaves memory for each later chunk of the rank, so that the oldest microbatch can always proceed.
///
/// In rhythm, which wins ties: with p ranks, F0 and F1 the forwards of a rank's two chunks, B1 and B0 their
/// input parts, rank r runs
///   forwards   2 (p - r) - 1 of F0, r times F1 and F0, p - r of F1, then F0 and F1 in turn;
///   backwards  p - r of B1, then B0 and B1 in turn;
/// and merges them: its next forward if that is ready, after a weight part if memory is full; otherwise its
/// next input part; otherwise a weight part. With equal steps and m >= 2p - 1 microbatches no rank pauses
/// between its first and its last step, as in ZB-V (Qi et al. 2023). In units of a step:
///   * the first F0 goes down the V and up again in time for rank r to run 2p forwards from time r on; then
///     its memory is full, and its first B1 is ready: F1 moves up one rank per unit, B1 moves down again;
///   * after that it runs a backward, its weight part and a forward every 3 units. F1 runs without F0 until p
///     of them have ended, B1 until 5p - 2r, when the first B0 comes, moving up the ranks every 2 units;
///   * after its last F0 a rank has one forward less in each turn. B0, which can also move up the ranks every
///     unit, runs early to fill the gap, and weight parts, for which there is now enough memory, wait until
///     the end.
/// It always terminates, whatever the times. An endless rhythm, which runs every turn in 3 units, obeys all
/// of these orders and limits. So they have no cycle. Therefore the constraints among the first m
/// microbatches have none, either.
std::vector<std::vector<OrderStep>> zb_v_steps(const PipelineShape& shape, const StepTimes& times);

/// Returns the steps of every rank of an encoder_in_bubbles shape. Ranks run `fixed` (on stages 1 and up) in
/// this order, and encoder microbatches when they would otherwise idle. A free rank starts its next fixed
/// step if it is ready. Otherwise it starts an encoder forward, because other ranks wait for it, or else an
/// encoder backward. Forwards and backwards are each in the order of microbatches. A rank holds at most
/// tables.most_held encoder microbatches (at least 1), from the start of their forward to the end of their
/// backward.
///
/// A step that fills a bubble may end after it, so this can be slower than not filling bubbles. If it is
/// slower, the result is instead all encoder forwards before `fixed` and all backwards after it, as far as
/// the limits permit.
///
/// It always terminates if `fixed` is 1f1b: the next gradient that stage 1 waits for needs the forwards of at
/// most `ranks` consecutive microbatches, which are on different ranks.
std::vector<std::vector<OrderStep>> bubble_steps(const PipelineShape& shape, const OrderTables& tables,
                                                 const std::vector<std::vector<OrderStep>>& fixed);

}  // namespace dflop
