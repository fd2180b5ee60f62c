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

/// A PipelineShape has the sizes and the kind of pipeline that an order is made for. Stages are numbered in
/// model order: first the `leading` ones, each on its own rank, then ranks * chunks stages on the other
/// ranks. If the order spreads the encoder, stage 0 is the encoder, which runs on rank (microbatch mod
/// ranks); stages 1 to `ranks` are on ranks 0, 1, ...
struct PipelineShape {
  OrderKind kind = OrderKind::one_f_one_b;
  int ranks = 1;   ///< not counting the leading ones
  int chunks = 1;  ///< stages per rank, within what OrderTraits permits
  int microbatches = 1;
  int leading = 0;                          ///< ranks of an encoder before the chunked ranks
  std::optional<Placement> placement = {};  ///< none: the kind's placement

  bool spreads_encoder() const { return traits(kind).spreads_encoder; }
  int stages() const { return leading + (spreads_encoder() ? 1 : 0) + ranks * chunks; }
  int all_ranks() const { return leading + ranks; }
  Placement chunk_placement() const { return placement.value_or(traits(kind).placement); }
  bool operator==(const PipelineShape&) const = default;
};

/// A pipeline without a model has at most this many stages, and at most this many stages times microbatches.
inline constexpr int kMaxRawStages = 4096;
inline constexpr int kMaxRawCells = 1 << 21;

/// Checks the shape of a pipeline without a model. `where` names the pipeline in errors, for example its
/// file.
/// @throws Error (input) naming the key (of schema "dflop.pipeline") for numbers below 1 or above the limits,
/// or chunks that the order cannot have.
void validate(const PipelineShape& shape, const std::string& where = "pipeline");

/// Returns how many microbatches of one chunk follow each other in an interleaved order: the smallest number,
/// at least `ranks`, for which the last group has at least `ranks` microbatches too. A smaller group would
/// wait for its own previous chunk. With fewer microbatches than ranks, it is all of them. Megatron-LM runs
/// these groups (microbatch_group_size_per_vp_stage), unless there are fewer microbatches than ranks. torch's
/// ScheduleInterleaved1F1B runs the same groups if all are equal, and no others.
int interleaved_group(int ranks, int microbatches);

/// Returns the rank that runs a stage for a microbatch. Only the rank of a spread encoder depends on the
/// microbatch.
int rank_of_stage(const PipelineShape& shape, int stage, int microbatch = 0);

/// Returns the stages of every rank, in model order.
std::vector<std::vector<int>> stages_of_ranks(const PipelineShape& shape);

/// StepTimes are the durations of a pipeline's steps, for orders that depend on them. They are indexed by
/// stage * microbatches + microbatch.
struct StepTimes {
  std::vector<Nanoseconds> forward;
  std::vector<Nanoseconds> backward;         ///< only the input part if backwards are split
  std::vector<Nanoseconds> backward_weight;  ///< empty if backwards are not split
  std::vector<Nanoseconds> message;          ///< between a stage and the next, in either direction
};

/// OrderTables are inputs that some orders need in addition to the shape. zb-v and encoder-in-bubbles read
/// the times; eager-1f1b and encoder-in-bubbles read the limits.
struct OrderTables {
  StepTimes times;  ///< if empty, all steps take equally long and messages take no time
  /// Element r is the max number of microbatches that rank r may hold at once, at least 1. For
  /// encoder-in-bubbles, it limits only encoder microbatches. Empty: no limits.
  std::vector<int> most_held;
};

/// Returns the steps of every rank, in order. A run in this order never deadlocks, whatever the step times.
/// On each stage, steps of the same operation are in increasing microbatch order; orders supplied by a user
/// need not be. The shape must be valid.
///
/// gpipe: all forwards, then all backwards in the same order.
///
/// 1f1b (Narayanan et al. 2021, PipeDream-Flush): ranks - rank - 1 warm-up forwards, then one forward and one
/// backward in turn, then the remaining backwards.
///
/// interleaved (Narayanan et al. 2021): each rank runs a group of microbatches of one chunk, then the same
/// microbatches of the next chunk. A group has interleaved_group() microbatches, which are `ranks` if the
/// ranks divide the microbatches. A rank has 2 (ranks - rank - 1) + (chunks - 1) * group warm-up forwards.
/// With one chunk it is 1f1b.
///
/// zb-h1 (Qi et al. 2023): 1f1b with weight parts `rank` microbatches behind the input parts. No rank holds
/// more than `ranks` microbatches, as many as the first rank of 1f1b.
///
/// zb-h2 (same paper): 2 (ranks - rank - 1) warm-up forwards, and weight parts 2 * rank microbatches behind
/// the input parts. A rank holds at most 2 * ranks - 1 microbatches. If there are fewer microbatches, the
/// longer warm-up would have bubbles, so the order is zb-h1.
///
/// zb-v (same paper): a rank holds at most 2 * ranks microbatches, counting a microbatch once for each of its
/// two chunks. This takes the same memory as 1f1b. There is no bubble between a rank's first and last step if
/// all steps take equally long and there are at least 2 * ranks - 1 microbatches. See zb_v_steps().
///
/// eager-1f1b (Zhuang et al. 2023, "On Optimizing the Communication of Model Parallelism"): 1f1b in which a
/// rank holds up to 2 (ranks - rank) - 1 microbatches instead of ranks - rank, so that messages have a whole
/// step to travel. A rank exceeds neither its limit nor the number that the rank before it holds, because
/// running further ahead than the ranks that feed it would deadlock. A rank that holds more than in 1f1b
/// holds fewer than the rank before it, because ranks that hold equally many take turns. Limits that are
/// enough for 1f1b are enough for this order.
///
/// encoder-in-bubbles (Feng et al. 2024, "Optimus"): 1f1b on stages 1 to `ranks`, with encoder microbatches
/// where a rank would idle; see bubble_steps().
///
/// three-phase (colocated MIMO of Megatron-Core, arXiv 2605.27678, and others): 1f1b on stages 1 to `ranks`,
/// with all encoder forwards before it and all encoder backwards after it. Each rank holds all of its encoder
/// microbatches.
///
/// on-demand (after the nested schedule of MegaScale-Omni, arXiv 2605.08962): 1f1b on stages 1
/// to `ranks`. A unit is `ranks` microbatches in a row, one encoded by each rank, just before the first rank
/// needs the first of them. Its backwards run as soon as the first rank has all of its gradients. A rank
/// holds at most three encoder microbatches.
///
/// A leading stage runs the steps of the stage that it feeds, with its forwards one ahead, as in 1f1b.
/// Leading stages of 1f1b thus also run 1f1b.
std::vector<std::vector<OrderStep>> pipeline_steps(const PipelineShape& shape,
                                                   const OrderTables& tables = {});

/// A PipelineOrder says which rank runs which steps, in which order.
struct PipelineOrder {
  PipelineShape shape;
  std::vector<std::vector<OrderStep>> ranks;  ///< the steps of each rank
};

/// Returns "F3", "B3", "I3" (input part) or "W3" (weight part) for microbatch 3; "F3.1" on the rank's chunk
/// 1, "F3.e" on a spread encoder.
std::string step_name(const PipelineShape& shape, const OrderStep& step);

/// Returns the step that `name` stands for on a rank; nullopt if the name is malformed, or the microbatch or
/// chunk is out of range. "F3.0" is the same as "F3".
std::optional<OrderStep> step_from_name(const PipelineShape& shape, int rank, std::string_view name);

/// Checks an order. Every rank must run each microbatch of its stages once, forward and then backward (whole,
/// or the input part before the weight part). Each stage must take inputs from another rank in the order in
/// which that rank sends them. No step may wait forever. verify() accepts programs in such an order. `where`
/// names the order in errors.
/// @throws Error (input) naming rank and position as the key (of schema "dflop.order") "ranks[2][7]".
void validate(const PipelineOrder& order, const std::string& where = "order");

}  // namespace dflop
