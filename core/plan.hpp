// A Plan says how a model is cut over the ranks of a cluster, and an Assignment which sample goes where.
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
  disaggregated,  ///< encoder and LLM on ranks of their own, each with its own tp, pp, dp
  uniform,        ///< one pipeline over encoder and LLM layers, one tp, pp, dp for all
  colocated,      ///< every tp group of the LLM also holds the whole encoder
  /// Encoder and LLM have ranks of their own, as many each; rank r of the one and rank r of the other run
  /// side by side on GPU r, each on a part of its multiprocessors.
  shared,
};

/// Returns whether encoder and LLM have ranks of their own, each with its own tp, pp and dp.
constexpr bool has_encoder_ranks(Layout layout) {
  return layout == Layout::disaggregated || layout == Layout::shared;
}

/// A RankOrder says how the pipelines' ranks are numbered, and so which of them share a node, as ranks fill
/// one node after the other. tp is always innermost.
enum class RankOrder : std::uint8_t {
  /// The dp ranks of a stage follow each other: gradient reductions stay inside nodes as far as they can. In
  /// a disaggregated plan the encoder comes first.
  stage_major,
  /// The stages of a dp rank follow each other: messages of the pipeline stay inside nodes as far as they
  /// can. A disaggregated plan is cut into as many equal pieces as both dp's allow with every tp group at a
  /// multiple of its tp, and in each piece the encoder's dp ranks come before those of the LLM, so that most
  /// of the reshard is inside pieces.
  replica_major,
};

/// A Recomputation says how much of a layer's activations is computed again in the backward pass.
enum class Recomputation : std::uint8_t { none, selective, full };

/// OptimizerStates say in which precision gradients and Adam's states are kept.
enum class OptimizerStates : std::uint8_t {
  fp32,  ///< mixed precision: bf16 parameters, fp32 gradients, parameters and moments
  bf16,  ///< all in bf16, and gradients once more in the buckets in which they are reduced
};

/// A Reshard says how activations get from the encoder's dp ranks to those of the LLM in a disaggregated
/// plan, and gradients back.
enum class Reshard : std::uint8_t {
  direct,  ///< from the rank that made them to the rank that needs them
  hub,     ///< by way of one rank of the encoder, which has all of a microbatch
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

/// Returns the bytes of one parameter's gradient, as it is accumulated and reduced.
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
  std::vector<int> layers;  ///< per stage in model order: pp of them, or pp * chunks

  int ranks() const { return tp * pp * dp; }
  bool operator==(const ModulePlan&) const = default;
};

/// A gradient bucket has at most so many bytes.
inline constexpr std::int64_t kMostGradientBucket = std::int64_t{1} << 50;

/// PlanOptions are what a user may ask of a plan; a planner leaves them as they are given, or chooses itself.
struct PlanOptions {
  OrderKind order = OrderKind::one_f_one_b;
  int chunks = 1;  ///< stages of each pipeline rank; more than 1 only for planners of uniform plans
  Recomputation recomputation = Recomputation::full;
  /// Gradients are reduced in buckets of about so many bytes, each as soon as the stage's last backward has
  /// made them; 0: all at once, after the last backward of the group.
  Bytes gradient_bucket;
  RankOrder placement = RankOrder::stage_major;
  OptimizerStates optimizer_states = OptimizerStates::fp32;
  Reshard reshard = Reshard::direct;  ///< where the encoder has ranks of its own; others have none
  bool zero1 = true;                  ///< optimizer states split over dp
  bool sequence_parallel = true;      ///< activations between tp regions split over tp
  /// Gradients are made smaller together where their norm over all parameters is above a limit, which all
  /// ranks have to know before any takes its optimizer step.
  bool clip_gradients = false;
  TrainedParts trained;  ///< what has gradients; the rest is frozen

  bool operator==(const PlanOptions&) const = default;
};

/// A Plan is a complete training configuration. With Layout::uniform both modules have the same tp, pp and
/// dp, and stage s runs encoder.layers[s] encoder layers, then llm.layers[s] LLM layers. With
/// Layout::colocated the encoder has the LLM's tp, one stage, and a copy on every group of the LLM: dp =
/// llm.dp * llm.pp. With Layout::shared both modules have as many ranks as there are GPUs: the encoder those
/// from 0 on, the LLM those behind them, and rank r of each is on GPU r. docs/shares.md says more.
///
/// Each pipeline rank of the LLM (uniform: of the pipeline) runs `chunks` stages, and the layers of that
/// module have pp * chunks entries. An encoder with ranks of its own has one stage on each.
struct Plan : PlanOptions {
  std::string planner;  ///< who made it
  std::string model;
  std::string cluster;
  int gbs = 0;  ///< global batch size, samples an iteration
  Layout layout = Layout::disaggregated;
  ModulePlan encoder;
  ModulePlan llm;
  int microbatches = 1;  ///< an iteration, per LLM dp rank
  /// This part of each GPU's multiprocessors is the encoder's and the rest the LLM's: above 0 and below 1 in
  /// a shared plan, 0 in others. granted_shares() says what a GPU makes of it.
  double encoder_share = 0;
  /// The plan was chosen for microbatches that make this small. None: it was chosen for any.
  std::optional<Objective> objective = {};
  /// Microbatches are to keep every rank within its GPU's memory, in batches that the planner has not seen,
  /// too.
  bool respect_memory = false;

  int ranks() const { return has_encoder_ranks(layout) ? encoder.ranks() + llm.ranks() : llm.ranks(); }
  /// Returns on how many GPUs the ranks are: one each, but in a shared plan, which has two on each.
  int gpus() const { return layout == Layout::shared ? llm.ranks() : ranks(); }
  int bins() const { return microbatches * llm.dp; }
  bool operator==(const Plan&) const = default;
};

/// Splits `layers` as evenly over `stages` as whole layers allow, larger parts first: {14, 13} for 27 over 2.
std::vector<int> split_layers(int layers, int stages);

/// Returns the first rank of every tp group: for each rank of the pipeline, encoder before LLM, its dp ranks.
/// The modules of a shared plan are each numbered as if alone, the encoder's ranks first.
std::vector<std::int32_t> first_ranks(const Plan& plan);

/// Checks a plan against itself, its model and its cluster. `where` is the plan's place for errors, as the
/// name of its file.
/// @throws Error (input) naming the key, what was expected and what was found.
void validate(const Plan& plan, const ModelSpec& model, const ClusterSpec& cluster,
              const std::string& where = "plan");

/// Checks what is trained against the model. `where` is the place for errors.
/// @throws Error (input) unless a part that the model has is trained, the model has what is frozen, and the
/// LLM is frozen beneath LoRA.
void validate(const TrainedParts& trained, const ModelSpec& model, const std::string& where = "plan");

/// Returns "encoder, connector, LLM", or what is left of them; with LoRA "connector, LoRA of rank 16 on the
/// LLM".
std::string describe(const TrainedParts& trained);

/// Returns "E tp2 pp1 dp4 | L tp4 pp2 dp3 mb16" or, uniform, "tp4 pp2 dp4 mb16"; orders other than gpipe and
/// 1f1b are named, as "tp4 pp2 dp4 mb16 interleaved x2" with two chunks, and so is a placement that is not
/// stage-major. A shared plan ends in the encoder's share, as "shared 0.25".
std::string describe(const Plan& plan);

/// An Assignment puts the samples of one global batch into bins. bin = microbatch * dp + dp rank, dp being
/// that of the LLM.
struct Assignment {
  int microbatches = 0;
  int dp = 0;
  std::vector<std::int32_t> bin;  ///< per sample, in batch order

  bool operator==(const Assignment&) const = default;
};

/// Checks an assignment against its plan and batch. `where` is the assignment's place for errors.
/// @throws Error (input) unless every sample has a bin of the plan and no bin is empty.
void validate(const Assignment& assignment, const Plan& plan, std::size_t samples,
              const std::string& where = "assignment");

}  // namespace dflop
