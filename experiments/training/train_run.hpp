// A TrainRun is one run of 'dflop train' on a world: its phases, one after the other.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/content/content_loader.hpp"
#include "backend/run/live_executor.hpp"
#include "backend/world.hpp"
#include "core/checkpoint.hpp"
#include "core/timeline.hpp"
#include "experiments/studies/made_by.hpp"
#include "experiments/training/checkpoint_folder.hpp"
#include "experiments/training/held_out.hpp"
#include "experiments/training/job.hpp"
#include "experiments/training/kernels.hpp"
#include "experiments/training/loop.hpp"
#include "experiments/training/settings.hpp"
#include "experiments/training/step_log.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {

/// A TrainRun trains a job on a world. All processes of the world construct one and call run(). The world,
/// the settings and the job must outlive it. If run() throws, tell the world before you destroy the TrainRun,
/// because its ranks may wait for other processes.
class TrainRun {
 public:
  TrainRun(World& world, const TrainSettings& settings, const TrainJob& job);

  /// Trains up to the last step, or until the process receives a signal. Returns the exit status: 0, or 128
  /// plus the signal's number.
  /// @throws Error (usage), (input), (output) if a phase fails. If a step fails and the state after the
  /// previous step is intact, the run first saves this state and its records.
  int run();

 private:
  // The phases of run(), in order. Each phase needs the previous phases.
  void claim_checkpoints();  ///< locks the folder, so that no other run writes to it
  void agree();              ///< checks that all processes have the same settings and job
  void adjust_profile();     ///< adjusts the profile to the kernels of the run and to corrections
  void check_export();
  void load();    ///< makes the ranks with their weights, and the loader of contents
  void resume();  ///< continues from a checkpoint, if requested
  void train();
  void finish();  ///< writes and prints the results

  void train_steps(TrainingLoop& training);
  CheckpointFolder checkpoint_folder();
  void save(std::int64_t step);
  void record_step(Timeline&& timeline);
  void write_record() const;
  std::optional<double> others() const;
  Provenance made_by() const;
  std::int64_t last_step() const;
  bool is_stopped() const;

  World& world_;
  const TrainSettings& settings_;
  const TrainJob& job_;
  const ModelSpec& model_;
  RunIdentity identity_;
  TrainingOptions options_;
  std::optional<FolderLock> own_folder_;
  std::shared_ptr<ContentLoader> loader_;  // null if contents are made up
  std::optional<LiveExecutor> executor_;
  std::unique_ptr<RunKernels> kernels_;  // null: the default kernels
  std::optional<HeldOutEvaluation> held_out_;
  std::optional<HostLoad> load_;  // since the first step
  StepLogs logs_;
  std::vector<TrainingStep> steps_;  // without their kernels, which would fill the memory in a long run
  std::deque<Timeline> recorded_;    // of the newest steps
  std::int64_t saved_ = 0;           // the last step that a checkpoint has
  int signal_ = 0;
};

}  // namespace dflop
