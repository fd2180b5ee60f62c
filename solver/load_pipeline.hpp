// A LoadPipeline is a pipeline whose durations are affine in the loads of its microbatches. The search for
// the smallest makespan evaluates it millions of times, and a linear program bounds it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/order/pipeline_order.hpp"

namespace dflop {

/// A Load is a sum over the items of a bin, or of a microbatch. Durations depend on loads.
struct Load {
  /// An item adds the sum over all features f of mix[f] * its value of feature f.
  std::vector<double> mix;
  /// If true, the sum is over all bins of a microbatch, for example for an encoder that the dp ranks share;
  /// otherwise it is over one bin.
  bool of_microbatch = false;
};

/// A LoadTime is fixed + scale * load, in seconds.
struct LoadTime {
  double fixed_s = 0;
  double scale = 0;
  std::int32_t load = 0;  ///< index into LoadPipeline::loads

  double at(double value) const { return fixed_s + scale * value; }
};

/// A LoadStep is one compute step of a rank.
struct LoadStep {
  std::int32_t rank = 0;
  std::int32_t microbatch = 0;
  LoadTime duration;
  /// The step waits for the output of this step, in addition to the previous step on its rank; -1: none.
  std::int32_t after = -1;
  LoadTime message;  ///< from the end of step `after` to the arrival of its output here
};

/// A LoadPipeline has `dp` replicas whose steps run in a fixed order. A rank is either replicated, with a
/// chain of steps for each dp rank, or shared, with one chain for all of them. A shared step that waits for a
/// replicated step waits for it on every dp rank.
struct LoadPipeline {
  int microbatches = 1;
  int dp = 1;
  std::vector<Load> loads;
  std::vector<char> shared;     ///< per rank
  int links = 0;                ///< number of ranks, at the end, that stand for links with overlapping work
  std::vector<double> tail_s;   ///< per rank: gradient reduction and optimizer, after its last step
  std::vector<LoadStep> steps;  ///< each step comes after the steps that it waits for

  int ranks() const { return static_cast<int>(shared.size()); }
  int bins() const { return microbatches * dp; }
};

/// StageLoadTimes are the durations of one stage. Messages are between this stage and the next one; between
/// stages of one rank they take no time.
struct StageLoadTimes {
  LoadTime forward;
  LoadTime backward;         ///< only the input part if the order splits backwards
  LoadTime backward_weight;  ///< read only if the order splits backwards
  LoadTime message_forward;
  LoadTime message_backward;  ///< from the next stage to this one
  /// The backward waits for a gradient from the next stage. False if nothing up to this stage is trained.
  bool awaits_gradient = true;
  bool shared = false;  ///< one copy for all dp ranks; the stages of a rank are all shared or all not
};

/// Makes a pipeline with the steps of an order, which must not deadlock. `stages` are in model order, and
/// `tail_s` has an entry for each rank.
LoadPipeline make_load_pipeline(const PipelineOrder& order, int dp, std::vector<Load> loads,
                                std::span<const StageLoadTimes> stages, std::vector<double> tail_s);

/// An OverlappedTail is work on the links that begins when the last step of a rank is partly done: the rank's
/// gradient reductions in buckets.
struct OverlappedTail {
  double part = 1;     ///< fraction of the last step after which the work begins
  double seconds = 0;  ///< min time from this begin to the end of the reductions
  double tail_s = 0;   ///< time after the reductions
};

/// Adds an overlapped tail of a rank to the pipeline, as an extra rank.
/// @pre the rank has steps
void add_overlapped_tail(LoadPipeline& pipeline, int rank, const OverlappedTail& tail);

/// Makes a pipeline for items that have only an encoder time (feature and load 0) and an LLM time (feature
/// and load 1), in seconds. In the forward, each of the first `encoder_stages` stages takes the encoder time
/// of a microbatch (all its bins) divided by encoder_dp. Each other stage takes the LLM time of its bin. The
/// backward takes `backward_ratio` times as long, half in each part if backwards are split. With encoder_dp =
/// 0 each dp rank encodes its own samples. Messages and tails take no time.
/// @throws Error (usage) for orders that depend on durations or spread the encoder
LoadPipeline simple_load_pipeline(const PipelineShape& shape, int encoder_stages, int dp, int encoder_dp,
                                  double backward_ratio);

/// Features have one span per feature, with a value per item.
using Features = std::vector<std::span<const double>>;

/// A LoadTable has the sums of every load, as [load][bin] with bin = microbatch * dp + dp rank, or as
/// [load][microbatch] for a load that is summed over microbatches.
using LoadTable = std::vector<std::vector<double>>;

/// Returns the load sums of an assignment. `bin` has an entry for each item.
LoadTable load_table(const LoadPipeline& pipeline, const Features& features,
                     std::span<const std::int32_t> bin);

/// Returns when the last rank is done, in seconds, by direct evaluation in one pass over the steps.
double makespan(const LoadPipeline& pipeline, const LoadTable& loads);

}  // namespace dflop
