// These functions save the state of a training run to the folder of its checkpoints, and resume from it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "backend/run/live_executor.hpp"
#include "core/checkpoint.hpp"
#include "core/model.hpp"
#include "core/sample.hpp"
#include "experiments/training/kernels.hpp"
#include "experiments/training/optimizer.hpp"
#include "kernels/attention_options.hpp"
#include "kernels/kernels.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {

/// Returns a hash of the samples in their order, which determines all batches of a seed and gbs.
std::string fingerprint(std::span<const Sample> samples);

RunIdentity run_identity(const ModelSpec& model, const std::string& data_file,
                         const std::string& data_fingerprint, std::uint64_t seed, int gbs);

/// A CheckpointFolder is the checkpoint folder of a run, which all processes of the world can access. It
/// refers to the state that checkpoints save.
struct CheckpointFolder {
  std::string path;
  RunIdentity run;
  World& world;
  LiveExecutor& executor;
  RunKernels* kernels = nullptr;  ///< null if there is no kernel state to save and restore
};

/// SavedSettings are the settings of a run's last step before the checkpoint.
struct SavedSettings {
  std::string plan;  ///< as describe() returns it
  std::string scheduler;
  OptimizerSettings optimizer = {};
  AttentionSums attention_sums = AttentionSums::fixed;  ///< saved only if it was not fixed
};

/// Writes a checkpoint of the state after `step`. All processes call it, and each rank writes its own part.
/// The leading process then removes all but the two newest checkpoints.
/// @throws Error (output)
void save_checkpoint(const CheckpointFolder& folder, std::int64_t step, const SavedSettings& settings);

/// ResumeSettings hold the settings that a user may change when a run resumes.
struct ResumeSettings {
  std::set<std::string> given;  ///< options that the user gave now
  std::optional<DType> dtype;
  std::optional<AttentionSums> attention_sums;
};

/// A ResumedRun says where a run resumes.
struct ResumedRun {
  std::int64_t step = 0;       ///< the last completed step
  bool has_optimizer = false;  ///< whether the checkpoint has the optimizer's options
};

/// Restores the state of the newest readable checkpoint in the folder; returns step 0 if there is none. Newer
/// unreadable checkpoints are set aside. Notes go to standard error. All processes of the world call it; each
/// verifies some of the files, and each rank then reads its part.
/// @throws Error (input) naming the difference if the checkpoint belongs to another run; naming a tensor that
/// the checkpoint lacks; or if there are checkpoints but none can be read. Also throws what keep_settings()
/// throws, which sets `optimizer`.
ResumedRun resume_training(const CheckpointFolder& folder, const ResumeSettings& settings,
                           OptimizerChoice& optimizer);

/// Checks that all processes of the world can write to the folder and see the leading process's files in it.
/// A checkpoint could not be completed if, for example, each machine had the folder on its own disk. Waits up
/// to `longest` for files to appear, because NFS refreshes a folder only every 30 to 60 s. All processes call
/// it; the folder must exist for the leading process.
/// @throws Error (output) with the rank and machine that cannot write or see the files
void require_seen_by_all(World& world, const std::string& folder,
                         std::chrono::milliseconds longest = std::chrono::minutes(1));

/// Creates the folder and locks it for this run until the returned lock is destroyed. Checkpoints are written
/// every `every` steps (0: none) and at `last_step`.
/// @throws Error (output) if the folder cannot be created or written to, or if a file has the name of a
/// future checkpoint; Error (input) for checkpoints of an earlier version; Error (usage) if another run uses
/// the folder, or if it already has checkpoints and `resume` is false.
FolderLock prepare_checkpoints(const std::string& folder, bool resume, std::int64_t last_step,
                               std::int64_t every);

}  // namespace dflop
