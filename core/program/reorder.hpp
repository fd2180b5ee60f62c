// reorder() gives the work of a Program another pipeline order.
#pragma once

#include <optional>
#include <vector>

#include "core/cost_model.hpp"
#include "core/order/pipeline_order.hpp"
#include "core/program/raw_pipeline.hpp"

namespace dflop {

/// A StepOrder has the steps of each pipeline rank: order[Group::stage] has the steps of a group.
using StepOrder = std::vector<std::vector<OrderStep>>;

/// SplitMemory is the memory, per rank, that one backward of a program needs after it is split.
struct SplitMemory {
  Bytes kept;  ///< additional bytes kept after the input part, until the weight part
  Bytes input_workspace;
  Bytes weight_workspace;
};

struct Reordering {
  /// The new program has this many microbatches; 0: as many as the old one, which has M. Microbatch j has the
  /// work of microbatch j mod M of the old program.
  int microbatches = 0;
  /// This fraction of a whole backward, in [0, 1], becomes a backward_weight if the order splits it.
  std::optional<double> weight_share = {};
  std::vector<double> weight_shares =
      {};  ///< the fraction for each stage; takes precedence over weight_share
  /// There is one entry for each instruction of the old program; only entries of whole backwards are read.
  /// Empty: nothing more is kept, and both parts have the workspace of the whole.
  std::vector<SplitMemory> split_memory = {};
  /// This memory of a GPU limits orders that depend on it; none: no limit.
  std::optional<Bytes> usable_memory = {};

  std::optional<double> share_of(std::size_t stage) const {
    return weight_shares.empty() ? weight_share : std::optional(weight_shares[stage]);
  }
  bool knows_shares() const { return weight_share || !weight_shares.empty(); }
};

/// Returns the program with the compute of every group in a new order. Each list is divided into blocks: a
/// compute instruction with the receives and sends of its stage and microbatch. The blocks follow one another
/// as `order` says, and then the rest (collectives, optimizer step). An all_reduce_start that compute follows
/// is instead placed right before the last backward of its stage, after the receives of that backward. If the
/// order is the program's own and its all_reduce_starts are already placed like this, the program stays
/// unchanged.
///
/// When a backward is split, its sends go with the input part, and the weight part frees the activations and
/// what the input part has kept (Reordering::split_memory). Split backwards are joined if the order has whole
/// ones. A joined backward frees what its forward has kept and has the larger of both workspaces, which is an
/// overestimate if recomputation brings several layers back.
/// @throws Error (input) naming rank and step if the order does not fit the program (its number of ranks
/// differs; a step is repeated, missing or unknown; it splits backwards but there is no weight_share) or if
/// verify() rejects the new program.
PricedProgram reorder(const Program& program, const ProgramCosts& costs, const StepOrder& order,
                      const Reordering& reordering = {});

/// Returns the order of each pipeline rank's groups, which must be the same for all groups of one rank.
/// @throws Error (input) if groups of one rank have different orders, or if ranks are not numbered from 0 on.
StepOrder step_order(const Program& program);

/// Returns the order of a kind for the ranks and stages of a program. zb-v uses the program's own durations
/// (the longest over the groups of a rank), and eager-1f1b uses the memory that its instructions keep.
/// @throws Error (input) if the stages are not where the order puts them; if the number of stages or
/// microbatches does not fit; if backwards are to be split without a weight_share; or if `kind` is
/// encoder-in-bubbles.
StepOrder order_of_kind(const Program& program, const ProgramCosts& costs, OrderKind kind,
                        const Reordering& reordering = {});

/// Returns the kind of the program's order, under a memory limit if there is one; nullopt if it matches no
/// kind.
std::optional<OrderKind> order_kind_of(const Program& program, const ProgramCosts& costs,
                                       std::optional<Bytes> usable_memory = {});

}  // namespace dflop
