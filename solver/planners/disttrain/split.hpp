// A GpuSplit divides GPUs between encoder and LLM, as DistTrain does.
#pragma once

#include <algorithm>
#include <cmath>

namespace dflop {

/// A GpuSplit estimates the time of an iteration as a convex function of the GPUs of both modules, x and y:
///
///   T(x, y) = encoder_gpu_s / x + llm_s + (microbatches - 1) * max(encoder_gpu_s / x, llm_gpu_s / y)
///
/// The first two terms are the warm-up: the first microbatch passes the encoder and all LLM stages. The last
/// term is the steady state: the slower module's stage sets the pace. The tp of both modules, the LLM's dp
/// and the number of microbatches are fixed, so more GPUs are more encoder replicas and more LLM stages.
struct GpuSplit {
  double encoder_gpu_s = 0;  ///< GPU-seconds of the encoder for a microbatch of all LLM dp ranks
  double llm_gpu_s = 0;      ///< the same for the LLM
  double llm_s = 0;          ///< time of a microbatch through all LLM stages
  int microbatches = 1;

  double seconds(double encoder_gpus, double llm_gpus) const {
    const double encoder = encoder_gpu_s / encoder_gpus;
    return encoder + llm_s + (microbatches - 1) * std::max(encoder, llm_gpu_s / llm_gpus);
  }

  /// Returns the x, not rounded, for which T(x, gpus - x) is smallest; 0 if the encoder has no work. Where
  /// both modules take equally long, T has a kink. If T still falls there, which happens with few
  /// microbatches, the minimum is at the x where its derivative is 0.
  double best_encoder_gpus(double gpus) const {
    const double both = encoder_gpu_s + llm_gpu_s;
    if (both == 0) return 0;
    const double equal = gpus * encoder_gpu_s / both;
    const double warm_up = std::sqrt(encoder_gpu_s);
    const double steady = std::sqrt((microbatches - 1) * llm_gpu_s);
    return warm_up == 0 ? equal : std::max(equal, gpus * warm_up / (warm_up + steady));
  }
};

}  // namespace dflop
