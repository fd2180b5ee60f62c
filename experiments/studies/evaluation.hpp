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

/// Returns the percentile `part` (such as 0.95) of ascending values, by nearest rank. @pre `rising` is not
/// empty
template <typename Value>
Value nearest_rank(const std::vector<Value>& rising, double part) {
  const double rank = std::ceil(part * static_cast<double>(rising.size()));
  return rising[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

/// An Evaluator runs the iterations of a plan one after the other and accumulates their results. What it is
/// made of must outlive it.
class Evaluator {
 public:
  /// Keeps spans of the first `traced` of `iterations`.
  Evaluator(const Plan& plan, const Target& target, const Executor& executor, std::size_t iterations,
            int traced);

  /// Runs the next iteration, in the order of order_for_batch() or in the user's.
  const Timeline& run(std::span<const Sample> samples, const Assignment& assignment,
                      const std::optional<PipelineOrder>& order = {});

  /// Returns the sums and means; a run that stalled has none.
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

/// Returns a message about a plan that needs more memory in an iteration than a GPU has: the rank, the time
/// and its memory at that time. On a mixed cluster each rank has the memory of its own GPU. Returns nothing
/// if the plan fits.
std::optional<std::string> out_of_memory(std::span<const Timeline> timelines, const ClusterSpec& cluster);

}  // namespace dflop
