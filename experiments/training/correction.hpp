// This file applies Adaptive Correction to a training run: schedules use what was learned from earlier steps.
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

/// A TrainingCorrection learns from steps. It learns from a step after the step's end, when the schedule of
/// the next step is already made. The result is therefore in use from the step after that.
class TrainingCorrection {
 public:
  /// Corrects `base` for a plan. Without a rule it always learns. If the rule needs the benefit of
  /// corrections, the scheduler runs once more per step, in its own thread. Ranks take turns on `cores`; see
  /// Conditions::cores.
  TrainingCorrection(std::shared_ptr<const CostModel> base, const Plan& plan,
                     std::shared_ptr<const Target> target, const SchedulerChoice& scheduler,
                     std::uint64_t seed, std::optional<SwitchRule> rule, int cores = 0);

  /// Returns the cost model for a schedule made now. May be called from any thread.
  std::shared_ptr<const CostModel> current() const;

  /// Registers a step and its iteration before it runs.
  void begin_step(const ScheduledBatch& batch, const Iteration& iteration);
  /// Registers the end of a step.
  void end_step(const ScheduledBatch& batch, const Timeline& timeline);

  /// Return whether the last step was learned from, and its predicted time.
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
