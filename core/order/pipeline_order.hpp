// A PipelineOrder is the order of forwards and backwards on every rank of a pipeline.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/program.hpp"
#include "core/units.hpp"

namespace dflop {

/// An OrderStep is one step of a rank's order: a compute operation on one of its stages.
struct OrderStep {
  Op op = Op::forward;
  std::int32_t stage = 0;
  std::int32_t microbatch = 0;

  bool operator==(const OrderStep&) const = default;
};

/// A PipelineShape is what an order is made for. Stages are numbered in model order: first the `leading`
/// ones, each on a rank of its own; then ranks * chunks on the other ranks. With encoder_in_bubbles stage 0
/// is the encoder, which runs on rank (microbatch mod ranks); stages 1 to `ranks` are on the ranks in turn.
struct PipelineShape {
  OrderKind kind = OrderKind::one_f_one_b;
  int ranks = 1;   ///< beside the leading ones
  int chunks = 1;  ///< stages of each of them, as many as OrderTraits says
  int microbatches = 1;
  int leading = 0;                          ///< an encoder's ranks in front of chunked ones
  std::optional<Placement> placement = {};  ///< none: that of the kind

  bool spreads_encoder() const { return traits(kind).spreads_encoder; }
  int stages() const { return leading + (spreads_encoder() ? 1 : 0) + ranks * chunks; }
  int all_ranks() const { return leading + ranks; }
  Placement chunk_placement() const { return placement.value_or(traits(kind).placement); }
  bool operator==(const PipelineShape&) const = default;
};

/// A pipeline without a model has at most so many stages, and so many stages x microbatches.
inline constexpr int kMostRawStages = 4096;
inline constexpr int kMostRawCells = 1 << 21;

/// Checks the shape of a pipeline without a model. `where` is the pipeline's place for errors, as the name of
/// its file.
/// @throws Error (input) naming the key (of schema "dflop.pipeline") for numbers below 1 or above the limits,
/// chunks that the order cannot have, or microbatches of an interleaved one that are no multiple of the
/// ranks.
void validate(const PipelineShape& shape, const std::string& where = "pipeline");

/// Returns the rank that runs a stage for a microbatch, on which it depends only for the encoder of
/// encoder_in_bubbles.
int rank_of_stage(const PipelineShape& shape, int stage, int microbatch = 0);

/// Returns the stages of every rank, in model order.
std::vector<std::vector<int>> stages_of_ranks(const PipelineShape& shape);

/// StepTimes say how long the steps of a pipeline take, for the orders that depend on it. They are indexed by
/// stage * microbatches + microbatch.
struct StepTimes {
  std::vector<Nanoseconds> forward;
  std::vector<Nanoseconds> backward;         ///< the input part where backwards are split
  std::vector<Nanoseconds> backward_weight;  ///< empty where they are not
  std::vector<Nanoseconds> message;          ///< between a stage and the next, either way
};

/// OrderTables are what some orders depend on beside the shape: zb-v and encoder-in-bubbles read the times,
/// eager-1f1b and encoder-in-bubbles the limits.
struct OrderTables {
  StepTimes times;  ///< without entries: every step takes the same, messages nothing
  /// Each rank may hold so many microbatches at once, at least 1; those of the encoder for
  /// encoder-in-bubbles. Without entries there are no limits.
  std::vector<int> most_held;
};

/// Returns the steps of every rank, in order. Whatever the times, running them in this order ends. The steps
/// of one operation on one stage come with rising microbatches, in orders that are made here: a user's own
/// need not keep to that. The shape must be valid.
///
/// gpipe: all forwards, then all backwards in the same order.
/// 1f1b (Narayanan et al. 2021, PipeDream-Flush): ranks - rank - 1 warm-up forwards, then one forward and one
/// backward in turn, then the remaining backwards.
/// interleaved (Narayanan et al. 2021): ranks in turn run `ranks` microbatches of a chunk, then of the next;
/// 2 (ranks - rank - 1) + (chunks - 1) ranks warm-up forwards; 1f1b for one chunk.
/// zb-h1 (Qi et al. 2023): 1f1b whose weight parts lag `rank` microbatches behind the input parts. No rank
/// holds more than `ranks` microbatches, as much as the first rank of 1f1b.
/// zb-h2 (same): 2 (ranks - rank - 1) warm-up forwards and a lag of 2 rank; at most 2 ranks - 1 microbatches
/// held. With fewer than these, which leave holes in the deeper warm-up, it is zb-h1.
/// zb-v (same): at most 2 ranks chunks of microbatches, again the memory of 1f1b; without a bubble between a
/// rank's first and last step where all steps take the same and there are 2 ranks - 1 microbatches or more.
/// See zb_v_steps().
/// eager-1f1b (Zhuang et al. 2023, "On Optimizing the Communication of Model Parallelism"): 1f1b in which a
/// rank holds up to 2 (ranks - rank) - 1 microbatches in place of ranks - rank, so that messages have a whole
/// step to travel in. It holds no more than its limit, nor than the ranks before it: a rank that ran further
/// ahead than those that feed it would wait for ever. Where it holds more than 1f1b it holds fewer than the
/// rank before it, as ranks that hold equally many take turns. Limits that let 1f1b hold what it does let
/// this do so, too.
/// encoder-in-bubbles (Feng et al. 2024, "Optimus"): 1f1b on stages 1 to `ranks`, and where a rank would idle
/// its encoder microbatches; see bubble_steps().
///
/// A leading stage runs what the stage that it feeds runs, with its forwards one ahead: as 1f1b does, whose
/// order this makes of 1f1b.
std::vector<std::vector<OrderStep>> pipeline_steps(const PipelineShape& shape,
                                                   const OrderTables& tables = {});

/// A PipelineOrder says who runs what, in which order: all that is left to decide of a pipeline.
struct PipelineOrder {
  PipelineShape shape;
  std::vector<std::vector<OrderStep>> ranks;  ///< the steps of each
};

/// Returns "F3", "B3", "I3" (input part), "W3" (weight part) of microbatch 3; "F3.1" on the rank's chunk 1,
/// "F3.e" on the encoder of encoder_in_bubbles.
std::string step_name(const PipelineShape& shape, const OrderStep& step);

/// Returns the step that `name` stands for on a rank; nothing where it is no such name, or the microbatch or
/// chunk is out of range. "F3.0" is the same as "F3".
std::optional<OrderStep> step_from_name(const PipelineShape& shape, int rank, std::string_view name);

/// Checks that every rank runs each microbatch of its stages once, forward and then backward (whole, or the
/// input part before the weight part), that each stage takes what comes from another rank in the order in
/// which that sends it, and that no step waits for ever. Programs of such an order are accepted by verify().
/// `where` is the order's place for errors.
/// @throws Error (input) naming rank and position as the key (of schema "dflop.order") "ranks[2][7]".
void validate(const PipelineOrder& order, const std::string& where = "order");

}  // namespace dflop
