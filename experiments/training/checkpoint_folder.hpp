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

/// Returns a fingerprint of everything that determines batches: the samples, in order.
std::string fingerprint(std::span<const Sample> samples);

RunIdentity run_identity(const ModelSpec& model, const std::string& data_file,
                         const std::string& data_fingerprint, std::uint64_t seed, int gbs);

/// A CheckpointFolder is the folder of a run, which all processes of the world see, and the state that its
/// checkpoints hold.
struct CheckpointFolder {
  std::string path;
  RunIdentity run;
  World& world;
  LiveExecutor& executor;
  RunKernels* kernels = nullptr;  ///< if not null, its state is saved and restored, too
};

/// The SavedSettings of a checkpoint are the settings with which a run made its last step.
struct SavedSettings {
  std::string plan;  ///< as describe() returns it
  std::string scheduler;
  OptimizerSettings optimizer = {};
  AttentionSums attention_sums = AttentionSums::fixed;  ///< saved only if it was not fixed
};

/// Writes the state after `step`. All processes call it, and each rank writes its part. The leading process
/// removes all but the two newest checkpoints.
/// @throws Error (output)
void save_checkpoint(const CheckpointFolder& folder, std::int64_t step, const SavedSettings& settings);

/// ResumeSettings hold the settings that may differ from the run's earlier part.
struct ResumeSettings {
  std::set<std::string> given;  ///< options that the user gave now
  std::optional<DType> dtype;
  std::optional<AttentionSums> attention_sums;
};

/// A ResumedRun says where a run resumes.
struct ResumedRun {
  std::int64_t step = 0;       ///< the last completed step
  bool has_optimizer = false;  ///< whether its checkpoint has the optimizer's options
};

/// Restores the state of the newest readable checkpoint in the folder; returns step 0 if there is none. Newer
/// unreadable checkpoints are set aside. Notes go to standard error. All processes of the world call it; each
/// verifies some of the files, and each rank then reads its part.
/// @throws Error (input) naming the difference if the checkpoint belongs to another run, or the tensor that
/// it lacks, and if there are checkpoints but none can be read; as keep_settings(), which sets `optimizer`.
ResumedRun resume_training(const CheckpointFolder& folder, const ResumeSettings& settings,
                           OptimizerChoice& optimizer);

/// Rejects a folder that some process of the world cannot write to, or does not see in the same way as the
/// leading process, for example because machines have their own disks: a checkpoint could not be completed
/// there. It allows for the delay of network disks: NFS checks a folder again after 30 to 60 s. All processes
/// call it; the folder exists for the leading process.
/// @throws Error (output) with the rank and machine
void require_seen_by_all(World& world, const std::string& folder,
                         std::chrono::milliseconds longest = std::chrono::minutes(1));

/// Creates the folder and locks it for this run as long as the returned lock lives. Checkpoints are written
/// every `every` steps (0: none) and at `last_step`.
/// @throws Error (output) if the folder cannot be created or written to, or something else has the name of a
/// checkpoint; Error (input) for checkpoints of an earlier version; Error (usage) if another run uses it, or
/// if it already has checkpoints and the run should not resume from them.
FolderLock prepare_checkpoints(const std::string& folder, bool resume, std::int64_t last_step,
                               std::int64_t every);

}  // namespace dflop
