// Reordering finds what a Program would be with the same work in another pipeline order.
#pragma once

#include <optional>
#include <vector>

#include "core/cost_model.hpp"
#include "core/order/pipeline_order.hpp"
#include "core/program/raw_pipeline.hpp"

namespace dflop {

/// A StepOrder has the steps of each pipeline rank: order[Group::stage] are those of a group.
using StepOrder = std::vector<std::vector<OrderStep>>;

/// A SplitMemory is the memory that a backward of a program needs once it is split, on each rank.
struct SplitMemory {
  Bytes kept;  ///< by so much more is kept after the input part, until the weight part
  Bytes input_workspace;
  Bytes weight_workspace;
};

struct Reordering {
  /// The new program has so many microbatches; 0: as many as the old one. Microbatch j does what microbatch j
  /// mod M of the old one does, M being those that it has.
  int microbatches = 0;
  /// This part of a whole backward, in [0, 1], becomes a backward_weight where the order splits it.
  std::optional<double> weight_share = {};
  std::vector<double> weight_shares = {};  ///< likewise, of each stage by itself, before weight_share
  /// This has an entry for each instruction of the old program; only those of whole backwards are read.
  /// Empty: nothing more is kept, and both parts have the workspace of the whole.
  std::vector<SplitMemory> split_memory = {};
  /// This much of a GPU's memory limits the orders that depend on it; none: nothing does.
  std::optional<Bytes> usable_memory = {};

  std::optional<double> share_of(std::size_t stage) const {
    return weight_shares.empty() ? weight_share : std::optional(weight_shares[stage]);
  }
  bool knows_shares() const { return weight_share || !weight_shares.empty(); }
};

/// Returns the program with every group's list in a new order of its compute. A list is taken apart into
/// blocks: each compute instruction with the receives and sends of its stage and microbatch. The blocks
/// follow one another as `order` says; then comes what is left (collectives, optimizer step), but an
/// all_reduce_start is put right before the last backward of its stage, after that one's receives, if compute
/// came after it. With the order that the program has it stays as it is, if its starts are there.
///
/// Of a backward that is split, the sends go with the input part, and the weight part frees the activations
/// and what the input part has kept (Reordering::split_memory). Split ones are joined
/// where the order has whole ones, which free what their forwards have kept and have the larger of their
/// buffers, too much where recomputation brings several layers back.
/// @throws Error (input) naming rank and step where the order does not fit the program: another number of
/// ranks, a step twice, missing or unknown, or backwards to be split without a weight_share; or if verify()
/// refuses the new program.
PricedProgram reorder(const Program& program, const ProgramCosts& costs, const StepOrder& order,
                      const Reordering& reordering = {});

/// Returns the order that the groups of each pipeline rank have, which must be the same for all groups of one
/// rank.
/// @throws Error (input) where it is not, or where ranks are not numbered from 0 on.
StepOrder step_order(const Program& program);

/// Returns the order of a kind for the ranks and stages of a program. zb-v follows the program's own
/// durations, the longest over the groups of a rank, and eager-1f1b what its instructions keep in memory.
/// @throws Error (input) if the stages are not where the order puts them, it does not fit their number or
/// that of microbatches, or backwards are to be split without a weight_share; for encoder-in-bubbles.
StepOrder order_of_kind(const Program& program, const ProgramCosts& costs, OrderKind kind,
                        const Reordering& reordering = {});

/// Returns the kind of order that the program has, under a limit of memory if there is one; nothing if it is
/// none of them.
std::optional<OrderKind> order_kind_of(const Program& program, const ProgramCosts& costs,
                                       std::optional<Bytes> usable_memory = {});

}  // namespace dflop
