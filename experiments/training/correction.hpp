// This file applies Adaptive Correction to a training run: schedules use corrections learned from earlier
// steps.
#pragma once

#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "core/iteration/iteration.hpp"
#include "core/scheduler.hpp"
#include "core/timeline.hpp"
#include "costmodel/correction/adaptive.hpp"
#include "costmodel/correction/corrected.hpp"
#include "experiments/studies/scheduling.hpp"
#include "experiments/studies/target.hpp"
#include "sim/engine.hpp"

namespace dflop {

/// A TrainingCorrection learns cost corrections from finished steps. When step n finishes, the schedule of
/// step n + 1 already exists. A correction learned from step n is therefore first used in step n + 2.
class TrainingCorrection {
 public:
  /// Corrects the costs of `base` for a plan. Without a rule, learning is always on. If the rule compares
  /// schedules with and without corrections, a separate thread runs the scheduler once more per step.
  /// Predictions assume that ranks take turns on `cores`; see Conditions::cores.
  TrainingCorrection(std::shared_ptr<const CostModel> base, const Plan& plan,
                     std::shared_ptr<const Target> target, const SchedulerChoice& scheduler,
                     std::uint64_t seed, std::optional<SwitchRule> rule, int cores = 0);

  /// Returns the cost model with the corrections in use now, for the next schedule. May be called from any
  /// thread.
  std::shared_ptr<const CostModel> current() const;

  /// Registers a step and its iteration before it runs.
  void begin_step(const ScheduledBatch& batch, const Iteration& iteration);
  /// Registers the end of a step.
  void end_step(const ScheduledBatch& batch, const Timeline& timeline);

  /// tracked() returns whether correction learned from the last step; predicted() returns the step's
  /// predicted time.
  bool tracked() const { return tracks_; }
  Seconds predicted() const { return predicted_; }
  const AdaptiveCorrection& state() const { return adaptive_; }

 private:
  double benefit(const CostModel& learned, const CostModel& kept, std::span<const Sample> samples,
                 std::uint64_t iteration, Seconds own) const;

  std::shared_ptr<const CostModel> base_;
  Plan plan_;
  std::shared_ptr<const Target> target_;
  SchedulerChoice scheduler_;
  std::uint64_t seed_;
  AdaptiveCorrection adaptive_;
  SimExecutor executor_;
  bool tracks_ = true;
  Seconds predicted_{0};
  std::future<double> benefit_;  ///< for the step in progress
  mutable std::mutex mutex_;
  std::shared_ptr<const CostModel> current_;
};

}  // namespace dflop
