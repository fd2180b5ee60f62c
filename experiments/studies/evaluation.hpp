// An Evaluation is the simulated result of a plan and its schedule.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/iteration/iteration.hpp"
#include "core/order/pipeline_order.hpp"
#include "core/timeline.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/studies/target.hpp"
#include "traces/files/schedule.hpp"

namespace dflop {

/// An Evaluation is the simulated result of a plan and schedule.
struct Evaluation {
  std::vector<Timeline> timelines;  ///< one per iteration
  Seconds mean{0};                  ///< mean iteration time
  Seconds p95{0};                   ///< p95 iteration time, nearest rank
  double samples_per_s = 0;
  double llm_tokens_per_s = 0;
  double mfu = 0;  ///< model FLOP (no recomputation, no padding) / (time x all GPUs of the cluster x peak)
  double idle_fraction = 0;  ///< mean over the plan's ranks and iterations, weighted by iteration time
  Bytes peak_memory;
  PipelineOrder order;  ///< order of the first iteration
};

/// Returns the `part` quantile (0.95: the 95th percentile) of values in ascending order, by nearest rank.
/// @pre `rising` is not empty
template <typename Value>
Value nearest_rank(const std::vector<Value>& rising, double part) {
  const double rank = std::ceil(part * static_cast<double>(rising.size()));
  return rising[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

/// An Evaluator runs the iterations of a plan one after the other and accumulates their results. The
/// constructor's arguments must outlive it.
class Evaluator {
 public:
  /// Prepares to run `iterations` iterations, and to keep the spans of the first `traced` ones.
  Evaluator(const Plan& plan, const Target& target, const Executor& executor, std::size_t iterations,
            int traced);

  /// Runs the next iteration in the pipeline order `order`; if it is empty, in the order of
  /// order_for_batch().
  const Timeline& run(std::span<const Sample> samples, const Assignment& assignment,
                      const std::optional<PipelineOrder>& order = {});

  /// Returns the results of all iterations. If one stalled, sums and means stay at their defaults.
  Evaluation take();

 private:
  void add(std::span<const Sample> samples, const Timeline& timeline);

  const Plan& plan_;
  const Target& target_;
  const Executor& executor_;
  std::size_t iterations_;
  std::size_t traced_;
  Evaluation result_;
  std::vector<Seconds> times_;
  double samples_ = 0;
  double tokens_ = 0;
  double flop_ = 0;
  double idle_time_ = 0;
  Progress progress_{"simulating"};
};

/// Makes and runs every iteration of a schedule, in the user's order if one is given, and keeps spans of the
/// first `traced` iterations. Stops after the first iteration that stalls.
Evaluation evaluate(const Plan& plan, const Target& target, const ScheduleFile& schedule, int traced,
                    const Executor& executor, const std::optional<PipelineOrder>& order = {});

/// If a rank needs more memory than its GPU has, returns a message with the rank, the time and the rank's
/// memory at that time. On a mixed cluster, GPUs have different amounts of memory. Returns nullopt if the
/// plan fits.
std::optional<std::string> out_of_memory(std::span<const Timeline> timelines, const ClusterSpec& cluster);

}  // namespace dflop
