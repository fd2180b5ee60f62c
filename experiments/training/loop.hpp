// The training loop takes batches, schedules and Programs as everywhere and runs them on a live device. One
// schedule serves all processes of a run: the leading one makes it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "backend/content/content_loader.hpp"
#include "backend/run/live_executor.hpp"
#include "backend/world.hpp"
#include "core/iteration/iteration.hpp"
#include "core/program.hpp"
#include "core/scheduler.hpp"
#include "costmodel/profiled/profiled.hpp"
#include "experiments/studies/study.hpp"
#include "experiments/training/correction.hpp"
#include "experiments/training/kernels.hpp"
#include "experiments/training/optimizer.hpp"
#include "experiments/training/steps_ahead.hpp"

namespace dflop {

/// A TrainingStep is what one step came to.
struct TrainingStep {
  std::int64_t step = 0;                ///< from 1 on
  double loss = 0;                      ///< mean over the trained tokens of the batch, before the update
  Seconds time{0};                      ///< from its first instruction to the end of its last
  std::optional<Seconds> step_to_step;  ///< from the end of the step before to this one's; none of the first
  std::optional<Seconds> predicted;     ///< where there is a profile to do so
  double extrapolated_fraction = 0;     ///< of compute instructions, beyond the profile's points
  std::int64_t samples = 0;
  std::int64_t encoder_tokens = 0;
  std::int64_t llm_tokens = 0;
  std::optional<double> mfu;  ///< where the devices' peak is known
  double idle_fraction = 0;   ///< mean over ranks
  Bytes peak_memory;
  Seconds waited{0};                   ///< for the schedule
  std::optional<Seconds> data_waited;  ///< for contents, where they are read from files
  bool tracked = false;                ///< correction learned from it
  double learning_rate = 0;
  std::optional<double> gradient_norm;  ///< before clipping, with a plan that clips
  std::optional<double> eval_loss;      ///< of held-out data, where they were looked at after the step
  std::optional<Seconds> eval_time;
  KernelChoices kernels;  ///< that all its ranks had, where they were chosen

  /// Returns the time between the end of the step before and the begin of this one, with evaluations and
  /// checkpoints.
  std::optional<Seconds> between_steps() const {
    return step_to_step ? std::optional(*step_to_step - time) : std::nullopt;
  }
  double tokens_per_s() const { return static_cast<double>(llm_tokens) / time.count(); }
};

class HeldOutEvaluation;

struct TrainingOptions {
  std::int64_t first_step = 1;
  std::int64_t last_step = 1;
  std::uint64_t seed = 1;  ///< of batches, contents and schedules
  OptimizerChoice optimizer;
  std::optional<double> peak_flop_per_s;  ///< of all devices, with which steps have an MFU
  int cores = 0;                          ///< on which the executor's ranks take turns; see Conditions::cores
  /// Steps are scheduled with this profile, and predicted by simulating the program that is run. Null: they
  /// are scheduled with the target's costs, and not predicted.
  std::shared_ptr<const ProfiledCostModel> profile;
  /// This looks at the program of each step before it runs, in all processes; what it throws ends the run.
  std::function<void(const Program&)> check_program;
  /// This corrects the profile, if there is one, by what steps take. Without a rule it always learns.
  bool correct = false;
  std::optional<SwitchRule> correction_rule;
  /// This delays instructions, with a profile and for experiments: they are delayed by what this one says
  /// they take longer than the profile does.
  std::shared_ptr<const CostModel> slower;
  /// This chooses the kernels of each step before it runs, and outlives the loop. Null: the default ones run.
  RunKernels* kernels = nullptr;
  /// This loads what samples hold, a step ahead, and outlives the loop. Null: it is made up.
  ContentLoader* loader = nullptr;
  /// This evaluates after some of the steps, and outlives the loop. Null: none.
  HeldOutEvaluation* held_out = nullptr;
};

/// A TrainingLoop trains step after step until the last one, or until `keep_going` says no after one.
/// `batches` begins with that of step 1, also where the first step is a later one. The schedule of a step is
/// made while the one before it runs, or a step earlier where the ranks of several processes load what their
/// schedules give them, each its own; target and batches are owned with the scheduler, which may outlive the
/// loop where it does not return in time. On devices that run asynchronously, Program and inputs of a
/// step are made while the one before it runs, too, in a thread, which takes memory for the inputs of one
/// step more: not where the schedule is not known before, as it learns from that step or has until its end.
/// What fails there is thrown when its step is to begin. All processes of the world run the same loop; steps
/// of all but the leading one have no loss, time and timeline.
class TrainingLoop {
 public:
  TrainingLoop(const Plan& plan, std::shared_ptr<const Target> target, BatchStream batches,
               const SchedulerChoice& scheduler, World& world, LiveExecutor& executor,
               const TrainingOptions& options);

  /// Calls on_step(step, timeline) after each.
  /// @throws Error (input) where the loss or the norm of gradients is not finite: weights are then those
  /// before the step, with a plan that clips; else as LiveExecutor::step()
  void run(const std::function<bool(const TrainingStep&, Timeline&&)>& on_step);

  /// Tells, when run() has thrown, whether it failed beside the ranks' work, and in all processes alike, as
  /// it does for a sample that cannot be decoded: the executor has the state after the last step then.
  bool failed_between_steps() const { return failed_between_steps_; }

  /// Returns what correction has come to; null without.
  const TrainingCorrection* correction() const { return correction_.get(); }

 private:
  void between_steps(const std::function<void()>& work);
  void evaluate(TrainingStep& done) const;
  TrainingStep run_step(std::int64_t step, PreparedStep prepared, Timeline& timeline);

  std::shared_ptr<const CostModel> scheduling_cost() const;
  KernelChoices shared_choices() const;
  std::vector<Nanoseconds> delays(const Iteration& iteration) const;

  const Plan& plan_;
  std::shared_ptr<const Target> target_;
  BatchStream batches_;
  SchedulerChoice scheduler_;
  World& world_;
  LiveExecutor& executor_;
  TrainingOptions options_;
  bool failed_between_steps_ = false;
  std::optional<std::chrono::steady_clock::time_point> last_end_;  ///< of a step
  std::shared_ptr<TrainingCorrection> correction_;                 ///< null: none
};

/// A SharedSource gives in all processes what `source` gives in the leading one: a scheduler with a time
/// limit does not find the same twice. Events, bounds and times stay with the leading process.
class SharedSource final : public AssignmentSource {
 public:
  /// Shares a source. `source` is null in all processes but the leading one. `batches` are the same in all,
  /// and begin with that of iteration 0.
  SharedSource(World& world, AssignmentSource* source, BatchStream batches)
      : world_(world), source_(source), batches_(std::move(batches)) {}

  std::optional<ScheduledBatch> next() override;

 private:
  World& world_;
  AssignmentSource* source_;
  BatchStream batches_;
};

/// Checks that processes have the same program. Each makes that of a schedule for itself, in floating point
/// and from data of their own; one that came to another would wait for messages that nobody sends. All
/// processes call it.
/// @throws Error (input) in a process whose program is not the leading one's.
void require_same_program(World& world, const Program& program);

}  // namespace dflop
