// A Plan says how a model is split over the ranks of a cluster. An Assignment says which sample goes into
// which microbatch and dp rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/cluster.hpp"
#include "core/model.hpp"
#include "core/names.hpp"
#include "core/order_kinds.hpp"
#include "core/schedule_kinds.hpp"
#include "core/units.hpp"

namespace dflop {

enum class Layout : std::uint8_t {
  disaggregated,  ///< encoder and LLM on separate ranks, each with its own tp, pp, dp
  uniform,        ///< one pipeline over encoder and LLM layers, one tp, pp, dp for all
  colocated,      ///< every tp group of the LLM also holds the whole encoder
  /// Encoder and LLM have separate ranks, the same number of each. Rank r of the encoder and rank r of the
  /// LLM run concurrently on GPU r, each on a part of its multiprocessors.
  shared,
};

/// Returns whether encoder and LLM have separate ranks, each with its own tp, pp and dp.
constexpr bool has_encoder_ranks(Layout layout) {
  return layout == Layout::disaggregated || layout == Layout::shared;
}

/// A RankOrder says how the ranks of the pipelines are numbered. It decides which ranks share a node, because
/// ranks fill nodes in order. tp is always innermost.
enum class RankOrder : std::uint8_t {
  /// The dp ranks of a stage are adjacent: gradient reductions stay inside nodes as far as possible. In a
  /// disaggregated plan the encoder's ranks come first.
  stage_major,
  /// The stages of a dp rank are adjacent: pipeline messages stay inside nodes as far as possible. A
  /// disaggregated plan is divided into equal pieces. Their number is the largest that divides the dp of both
  /// modules and lets every tp group start at a multiple of its tp. In each piece the encoder's dp ranks come
  /// before the LLM's, so that most of the reshard stays inside pieces.
  replica_major,
};

/// A Recomputation says how much of a layer's activations is recomputed in the backward pass.
enum class Recomputation : std::uint8_t { none, selective, full };

/// OptimizerStates is the precision of gradients and of Adam's states.
enum class OptimizerStates : std::uint8_t {
  fp32,  ///< mixed precision: bf16 parameters, fp32 gradients, parameters and moments
  bf16,  ///< all in bf16; the buckets of reductions hold a second copy of the gradients
};

/// A Reshard says how activations get from the encoder's dp ranks to the LLM's, and gradients back, if the
/// encoder has its own ranks.
enum class Reshard : std::uint8_t {
  direct,  ///< from the rank that made them to the rank that needs them
  hub,     ///< through one rank of the encoder, which gets all of a microbatch
};

/// A ShareRule says how a microbatch is divided over the encoder's dp ranks, if these differ from the LLM's,
/// or over the copies of the encoder in a tp group. Each rank gets successive samples or sequences.
enum class ShareRule : std::uint8_t {
  cost,   ///< sequences, into parts of equal FLOP
  count,  ///< whole samples, into parts of equally many
};

template <>
inline constexpr NameTable<Layout, 4> kNames<Layout> = {{{Layout::disaggregated, "disaggregated"},
                                                         {Layout::uniform, "uniform"},
                                                         {Layout::colocated, "colocated"},
                                                         {Layout::shared, "shared"}}};
template <>
inline constexpr NameTable<RankOrder, 2> kNames<RankOrder> = {
    {{RankOrder::stage_major, "stage-major"}, {RankOrder::replica_major, "replica-major"}}};
template <>
inline constexpr NameTable<Recomputation, 3> kNames<Recomputation> = {
    {{Recomputation::none, "none"}, {Recomputation::selective, "selective"}, {Recomputation::full, "full"}}};
template <>
inline constexpr NameTable<OptimizerStates, 2> kNames<OptimizerStates> = {
    {{OptimizerStates::fp32, "fp32"}, {OptimizerStates::bf16, "bf16"}}};
template <>
inline constexpr NameTable<Reshard, 2> kNames<Reshard> = {
    {{Reshard::direct, "direct"}, {Reshard::hub, "hub"}}};

template <>
inline constexpr NameTable<ShareRule, 2> kNames<ShareRule> = {
    {{ShareRule::cost, "cost"}, {ShareRule::count, "count"}}};

/// Returns the bytes of one parameter's gradient during accumulation and reduction.
constexpr std::int64_t gradient_bytes(OptimizerStates states) {
  return states == OptimizerStates::fp32 ? kFp32Bytes : kBf16Bytes;
}

/// Returns whether plans of this layout can run in this order.
inline bool fits(const OrderTraits& order, Layout layout) {
  return order.spreads_encoder == (layout == Layout::colocated);
}

/// A ModulePlan is the parallelism of one module.
struct ModulePlan {
  int tp = 1;
  int pp = 1;
  int dp = 1;
  std::vector<int> layers;  ///< layers of each stage, in model order: pp entries, or pp * chunks

  int ranks() const { return tp * pp * dp; }
  bool operator==(const ModulePlan&) const = default;
};

/// A gradient bucket has at most this many bytes.
inline constexpr std::int64_t kMaxGradientBucket = std::int64_t{1} << 50;

/// PlanOptions are the options of a plan that a user may set. Some planners keep them, others choose their
/// own.
struct PlanOptions {
  OrderKind order = OrderKind::one_f_one_b;
  int chunks = 1;  ///< stages of each pipeline rank; only planners of uniform plans accept more than 1
  Recomputation recomputation = Recomputation::full;
  /// The encoder's, if it is not the same. Only plans in which the encoder has stages of its own have one.
  std::optional<Recomputation> encoder_recomputation = {};
  /// Gradients are reduced in buckets of about this many bytes. Each bucket is reduced as soon as the stage's
  /// last backward has computed it. 0: all gradients are reduced at once, after the last backward of the
  /// group.
  Bytes gradient_bucket;
  RankOrder placement = RankOrder::stage_major;
  OptimizerStates optimizer_states = OptimizerStates::fp32;
  Reshard reshard = Reshard::direct;  ///< if the encoder has separate ranks; other plans have no reshard
  ShareRule share_rule = ShareRule::cost;
  bool zero1 = true;              ///< optimizer states are split over dp
  bool sequence_parallel = true;  ///< activations between tp regions are split over tp
  /// True: all gradients are scaled down if their norm over all parameters exceeds a limit. All ranks must
  /// know the norm before any takes its optimizer step.
  bool clip_gradients = false;
  TrainedParts trained;  ///< what has gradients; the rest is frozen

  bool operator==(const PlanOptions&) const = default;
};

/// A Plan is a complete training configuration. With Layout::uniform both modules have the same tp, pp and
/// dp, and stage s runs encoder.layers[s] encoder layers, then llm.layers[s] LLM layers. With
/// Layout::colocated the encoder has one stage and a tp that divides the LLM's. Every tp group of the LLM
/// holds encoder_copies() copies of it, which share the sequences of each microbatch: encoder.tp * encoder.dp
/// = llm.ranks(). With Layout::shared each module has as many ranks as there are GPUs. The encoder's ranks
/// are numbered first, from 0 on, then the LLM's. Rank r of each module is on GPU r. docs/shares.md says
/// more.
///
/// Each pipeline rank of the LLM (uniform: of the pipeline) runs `chunks` stages, so `layers` of that module
/// has pp * chunks entries. An encoder with separate ranks has one stage on each rank.
struct Plan : PlanOptions {
  std::string planner;  ///< the planner that made it
  std::string model;
  std::string cluster;
  int gbs = 0;  ///< global batch size: samples per iteration
  Layout layout = Layout::disaggregated;
  ModulePlan encoder;
  ModulePlan llm;
  int microbatches = 1;  ///< per iteration and LLM dp rank
  /// The encoder gets this fraction of each GPU's multiprocessors, and the LLM gets the rest. Above 0 and
  /// below 1 in a shared plan, 0 in others. granted_shares() says how a GPU rounds it.
  double encoder_share = 0;
  /// The plan was chosen for this scheduling objective. None: it was chosen for any.
  std::optional<Objective> objective = {};
  /// Schedulers must keep every rank within its GPU's memory, also for batches that the planner has not seen.
  bool respect_memory = false;

  int ranks() const { return has_encoder_ranks(layout) ? encoder.ranks() + llm.ranks() : llm.ranks(); }
  /// Returns the number of GPUs: one per rank, except in a shared plan, which has two ranks per GPU.
  int gpus() const { return layout == Layout::shared ? llm.ranks() : ranks(); }
  int bins() const { return microbatches * llm.dp; }
  bool operator==(const Plan&) const = default;
};

/// Returns how many copies of the encoder each tp group of the LLM holds. It is 1 except in a colocated plan
/// whose encoder has a smaller tp than the LLM.
inline int encoder_copies(const Plan& plan) {
  return plan.layout == Layout::colocated ? plan.llm.tp / plan.encoder.tp : 1;
}

/// Returns the number of parts into which the encoder's work for a microbatch of all LLM dp ranks is divided.
inline int encoder_parts(const Plan& plan) {
  return has_encoder_ranks(plan.layout) ? plan.encoder.dp : plan.llm.dp * encoder_copies(plan);
}

/// Returns the recomputation of a module's layers.
inline Recomputation recomputation_of(const PlanOptions& options, bool encoder) {
  return encoder ? options.encoder_recomputation.value_or(options.recomputation) : options.recomputation;
}

/// Splits `layers` as evenly over `stages` as whole layers allow, larger parts first: {14, 13} for 27 over 2.
std::vector<int> split_layers(int layers, int stages);

/// Returns the first rank of every tp group. The groups are in the order of pipeline ranks (the encoder's
/// before the LLM's), then of dp ranks. In a shared plan each module is numbered as if it were the only one,
/// but the LLM's ranks follow the encoder's.
std::vector<std::int32_t> first_ranks(const Plan& plan);

/// Checks that a plan is consistent and fits its model and cluster. `where` names the plan in errors, for
/// example its file.
/// @throws Error (input) naming the key, what was expected and what was found.
void validate(const Plan& plan, const ModelSpec& model, const ClusterSpec& cluster,
              const std::string& where = "plan");

/// Checks that the trained parts fit the model. `where` is the place for errors.
/// @throws Error (input) unless a part that the model has is trained, the model has the frozen parts, and the
/// LLM is frozen if LoRA is used.
void validate(const TrainedParts& trained, const ModelSpec& model, const std::string& where = "plan");

/// Returns the names of the trained parts, for example "encoder, connector, LLM"; with LoRA "connector, LoRA
/// of rank 16 on the LLM".
std::string describe(const TrainedParts& trained);

/// Returns a summary: "E tp2 pp1 dp4 | L tp4 pp2 dp3 mb16" or, if the encoder has no separate ranks, "tp4 pp2
/// dp4 mb16". It names orders other than gpipe and 1f1b, and placements other than stage-major: "tp4 pp2 dp4
/// mb16 interleaved x2" is an interleaved plan with two chunks. A colocated plan whose encoder has a tp of
/// its own ends with it, such as "encoder tp1". A shared plan ends with the encoder's share, such as "shared
/// 0.25".
std::string describe(const Plan& plan);

/// An Assignment puts the samples of one global batch into bins. The number of a bin is microbatch * dp + dp
/// rank, where dp is the LLM's.
struct Assignment {
  int microbatches = 0;
  int dp = 0;
  std::vector<std::int32_t> bin;  ///< per sample, in batch order

  bool operator==(const Assignment&) const = default;
};

/// Checks an assignment against its plan and batch. `where` names the assignment in errors.
/// @throws Error (input) unless every sample has a bin of the plan and no bin is empty.
void validate(const Assignment& assignment, const Plan& plan, std::size_t samples,
              const std::string& where = "assignment");

}  // namespace dflop
