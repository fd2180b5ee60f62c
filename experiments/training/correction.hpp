// Adaptive Correction of a training run makes schedules with what its steps have taught.
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
#include "experiments/studies/study.hpp"
#include "sim/engine.hpp"

namespace dflop {

/// A TrainingCorrection learns from steps. A step is learned from when it is over; the schedule of the next
/// one has been made by then, so what it taught is in use from the one after that.
class TrainingCorrection {
 public:
  /// Corrects `base` for a plan. Without a rule it always learns. The scheduler is run once more a step, in
  /// a thread of its own, where the rule asks what corrections give. Ranks take turns on
  /// `cores`; see Conditions::cores.
  TrainingCorrection(std::shared_ptr<const CostModel> base, const Plan& plan,
                     std::shared_ptr<const Target> target, const SchedulerChoice& scheduler,
                     std::uint64_t seed, std::optional<SwitchRule> rule, int cores = 0);

  /// Returns what a schedule that is made now is made with. May be called from any thread.
  std::shared_ptr<const CostModel> current() const;

  /// Begins a step before it runs, with its iteration.
  void begin_step(const ScheduledBatch& batch, const Iteration& iteration);
  /// Ends a step when it is over.
  void end_step(const ScheduledBatch& batch, const Timeline& timeline);

  /// These tell whether the last step was learned from, and what it was predicted to take.
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
  std::future<double> benefit_;  ///< of the step that has begun
  mutable std::mutex mutex_;
  std::shared_ptr<const CostModel> current_;
};

}  // namespace dflop
