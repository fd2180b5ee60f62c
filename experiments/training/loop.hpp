// The training loop takes batches, schedules and Programs from the same code as simulations, and runs them on
// a live device. The leading process makes the schedules for all processes of a run.
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
#include "experiments/studies/batches.hpp"
#include "experiments/studies/evaluation.hpp"
#include "experiments/studies/scheduling.hpp"
#include "experiments/studies/target.hpp"
#include "experiments/training/correction.hpp"
#include "experiments/training/kernels.hpp"
#include "experiments/training/optimizer.hpp"
#include "experiments/training/steps_ahead.hpp"

namespace dflop {

/// A TrainingStep is the result of one step.
struct TrainingStep {
  std::int64_t step = 0;  ///< counting from 1
  double loss = 0;        ///< mean over the batch's tokens that count in the loss, before the update
  Seconds time{0};        ///< from the start of its first instruction to the end of its last
  /// From the previous step's end to this step's end; none for the first step.
  std::optional<Seconds> step_to_step;
  std::optional<Seconds> predicted;  ///< only with a profile
  double extrapolated_fraction = 0;  ///< see extrapolated_fraction(); 0 without a profile
  std::int64_t samples = 0;
  std::int64_t encoder_tokens = 0;
  std::int64_t llm_tokens = 0;
  std::optional<double> mfu;  ///< only if the devices' peak is known
  double idle_fraction = 0;   ///< mean over ranks
  Bytes peak_memory;
  Seconds waited{0};                   ///< time that the loop waited for the schedule
  std::optional<Seconds> data_waited;  ///< time that the loop waited for contents, if they come from files
  bool tracked = false;                ///< whether correction learned from it
  double learning_rate = 0;
  std::optional<double> gradient_norm;  ///< before clipping; none if gradients are not clipped
  std::optional<double> eval_loss;      ///< on held-out data; none if it was not evaluated after the step
  std::optional<Seconds> eval_time;
  KernelChoices kernels;  ///< used by all ranks in this step, if the run chooses kernels

  /// Returns the time between the end of the previous step and the beginning of this one, including
  /// evaluations and checkpoints.
  std::optional<Seconds> between_steps() const {
    return step_to_step ? std::optional(*step_to_step - time) : std::nullopt;
  }
  double tokens_per_s() const { return static_cast<double>(llm_tokens) / time.count(); }
};

class HeldOutEvaluation;

struct TrainingOptions {
  std::int64_t first_step = 1;
  std::int64_t last_step = 1;
  std::uint64_t seed = 1;  ///< for batches, contents and schedules
  OptimizerChoice optimizer;
  std::optional<double> peak_flop_per_s;  ///< total of all devices, to compute MFU
  int cores = 0;  ///< cores on which the executor's ranks take turns; see Conditions::cores
  /// The profile used to schedule steps, and to predict them by simulating the executed program. Null: steps
  /// are scheduled with the target's costs and not predicted.
  std::shared_ptr<const ProfiledCostModel> profile;
  /// Called in all processes with the program of each step before the step runs. If it throws, the run stops
  /// with this exception.
  std::function<void(const Program&)> check_program;
  /// Whether to correct the profile, if there is one, from measured steps. Without a `correction_rule`, every
  /// step is learned from.
  bool correct = false;
  std::optional<SwitchRule> correction_rule;
  /// For experiments with a profile: delays each instruction by its cost in this model minus its cost in the
  /// profile.
  std::shared_ptr<const CostModel> slower;
  /// Chooses the kernels of each step before it runs; must outlive the loop. Null: the default kernels run.
  RunKernels* kernels = nullptr;
  /// Loads the contents of the next step's samples during a step; must outlive the loop. Null: contents are
  /// made up.
  ContentLoader* loader = nullptr;
  /// Evaluates after some of the steps; must outlive the loop. Null: no evaluation.
  HeldOutEvaluation* held_out = nullptr;
};

/// A TrainingLoop trains step by step until the last step, or until `keep_going` returns false. `batches`
/// begins with the batch of step 1, even if the first step is a later one.
///
/// The scheduler makes the schedule of step n + 1 while step n runs. It works one more step ahead if each of
/// several processes loads only the contents that the schedule assigns to it. The loop shares ownership of
/// the target and the batches with the scheduler, because the scheduler may outlive the loop if it does not
/// return in time. On asynchronous devices, a thread also makes the Program and inputs of step n + 1 while
/// step n runs, which takes memory for the inputs of one more step. The thread is not used if the schedule is
/// not known early: the scheduler learns from the previous step, or may need its whole duration. If preparing
/// a step fails, the error is thrown when the step would begin. All processes of the world run the same loop;
/// only the leading process has losses, times and timelines of steps.
class TrainingLoop {
 public:
  TrainingLoop(const Plan& plan, std::shared_ptr<const Target> target, BatchStream batches,
               const SchedulerChoice& scheduler, World& world, LiveExecutor& executor,
               const TrainingOptions& options);

  /// Calls on_step(step, timeline) after each step.
  /// @throws Error (input) if the loss or the gradient norm is not finite; if gradients are clipped, this
  /// step has then not changed the weights. Also throws what LiveExecutor::step() throws.
  void run(const std::function<bool(const TrainingStep&, Timeline&&)>& on_step);

  /// If run() threw, returns whether it failed between two steps and in all processes, for example because a
  /// sample cannot be decoded. The executor then has the state after the last completed step.
  bool failed_between_steps() const { return failed_between_steps_; }

  /// Returns the correction's state; null if nothing is corrected.
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
  std::optional<std::chrono::steady_clock::time_point> last_end_;  ///< end of the last step
  std::shared_ptr<TrainingCorrection> correction_;                 ///< null: none
};

/// A SharedSource sends the schedules of the leading process's `source` to all processes. Each process cannot
/// schedule by itself, because a scheduler with a time limit may find a different schedule each time. Only
/// the leading process gets events, bounds and times.
class SharedSource final : public AssignmentSource {
 public:
  /// `source` is null in all processes except the leading one. `batches` is the same in all processes, and
  /// begins with the batch of iteration 0.
  SharedSource(World& world, AssignmentSource* source, BatchStream batches)
      : world_(world), source_(source), batches_(std::move(batches)) {}

  std::optional<ScheduledBatch> next() override;

 private:
  World& world_;
  AssignmentSource* source_;
  BatchStream batches_;
};

/// Checks that all processes have the same program. Programs can differ because each process makes its own
/// from the schedule, with floating-point arithmetic and its own copy of the data. A process with a different
/// program would wait for messages that nobody sends. All processes call it.
/// @throws Error (input) in a process whose program differs from the leading process's program.
void require_same_program(World& world, const Program& program);

}  // namespace dflop
