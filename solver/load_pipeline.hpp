// A LoadPipeline is a pipeline whose durations are affine in the loads of its microbatches: the search for
// the smallest makespan evaluates it millions of times, and a linear program bounds it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/order/pipeline_order.hpp"

namespace dflop {

/// A Load is one sum over the items of a bin, or of a microbatch, that durations depend on.
struct Load {
  /// An item adds the sum over features of mix * feature. There is one entry for each feature.
  std::vector<double> mix;
  /// The sum is over all bins of a microbatch (an encoder that its dp ranks share); else over one bin.
  bool of_microbatch = false;
};

/// A LoadTime is fixed + scale * load, in seconds.
struct LoadTime {
  double fixed_s = 0;
  double scale = 0;
  std::int32_t load = 0;  ///< into LoadPipeline::loads

  double at(double value) const { return fixed_s + scale * value; }
};

/// A LoadStep is one compute step of a rank.
struct LoadStep {
  std::int32_t rank = 0;
  std::int32_t microbatch = 0;
  LoadTime duration;
  std::int32_t after =
      -1;            ///< the step whose output it waits for, beside the one before it on its rank; -1: none
  LoadTime message;  ///< from that one's end to when it is here, by the loads of the same microbatch
};

/// A LoadPipeline has `dp` replicas in a fixed order. A rank is either one chain for each dp rank, or shared:
/// a single chain for all of them. A shared step that waits for a replicated one waits for that of every dp
/// rank.
struct LoadPipeline {
  int microbatches = 1;
  int dp = 1;
  std::vector<Load> loads;
  std::vector<char> shared;     ///< per rank
  int links = 0;                ///< so many of the ranks, the last ones, only say what overlaps with others
  std::vector<double> tail_s;   ///< per rank: gradient reduction and optimizer, after its last step
  std::vector<LoadStep> steps;  ///< so that each comes after what it waits for

  int ranks() const { return static_cast<int>(shared.size()); }
  int bins() const { return microbatches * dp; }
};

/// StageLoadTimes are the times of one stage. Messages are those between it and the next one; zero between
/// stages of one rank.
struct StageLoadTimes {
  LoadTime forward;
  LoadTime backward;         ///< the input part where the order splits backwards
  LoadTime backward_weight;  ///< read only where it does
  LoadTime message_forward;
  LoadTime message_backward;    ///< from the next stage to this one
  bool awaits_gradient = true;  ///< from the next stage; not where nothing up to here is trained
  bool shared = false;          ///< one copy for all dp ranks; ranks hold either only such stages or none
};

/// Makes the steps of an order that runs to its end. `stages` are in model order, and `tail_s` has an entry
/// for each rank.
LoadPipeline make_load_pipeline(const PipelineOrder& order, int dp, std::vector<Load> loads,
                                std::span<const StageLoadTimes> stages, std::vector<double> tail_s);

/// An OverlappedTail is what begins on the links when the last step of a rank has run for a part: its
/// gradient reductions in buckets.
struct OverlappedTail {
  double part = 1;     ///< of that step
  double seconds = 0;  ///< from then to the end of the reductions, at least
  double tail_s = 0;   ///< after them
};

/// Adds an overlapped tail of a rank as a rank of its own.
/// @pre the rank has steps
void add_overlapped_tail(LoadPipeline& pipeline, int rank, const OverlappedTail& tail);

/// Makes a pipeline of items that are just an encoder time and an LLM time, in seconds: features and loads 0
/// and 1. The first `encoder_stages` stages take encoder_s of a microbatch (all its bins) over encoder_dp
/// forward, the others llm_s of their bin, and `backward_ratio` times that backward (where backwards are
/// split, half of it each). With encoder_dp = 0 each dp rank encodes its own samples. Messages and tails take
/// no time.
/// @throws Error (usage) for orders that depend on durations or spread the encoder
LoadPipeline simple_load_pipeline(const PipelineShape& shape, int encoder_stages, int dp, int encoder_dp,
                                  double backward_ratio);

/// Features have for each feature one span with a value per item.
using Features = std::vector<std::span<const double>>;

/// A LoadTable has the sums of every load: [load][bin], bin = microbatch * dp + dp rank; of a load of
/// microbatches [load][microbatch].
using LoadTable = std::vector<std::vector<double>>;

/// Sums up what the items of an assignment come to. `bin` has an entry for each item.
LoadTable load_table(const LoadPipeline& pipeline, const Features& features,
                     std::span<const std::int32_t> bin);

/// Returns when the last rank is done, in seconds. It is the plain evaluation, one pass over the steps.
double makespan(const LoadPipeline& pipeline, const LoadTable& loads);

}  // namespace dflop
