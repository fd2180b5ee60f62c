// Training goes on where it ended: the state of a run goes to its checkpoints and comes from them.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>

#include "backend/run/live_executor.hpp"
#include "core/checkpoint.hpp"
#include "core/model.hpp"
#include "core/plan.hpp"
#include "core/sample.hpp"
#include "experiments/training/kernels.hpp"
#include "experiments/training/optimizer.hpp"
#include "kernels/attention_options.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {

/// Returns a fingerprint of all that makes batches: what samples are, in their order.
std::string fingerprint(std::span<const Sample> samples);

RunIdentity run_identity(const ModelSpec& model, const std::string& data_file,
                         const std::string& data_fingerprint, std::uint64_t seed, int gbs);

/// Writes the state after `step` into the run's folder, which all processes of the world see; all call it,
/// and each rank writes its part. The leading one removes all but the two newest. `kernels`, where it is not
/// null, is kept with it, and so are sums of attention in no fixed order.
/// @throws Error (output)
void save_checkpoint(const std::string& folder, const RunIdentity& run, const Plan& plan,
                     const std::string& scheduler, std::int64_t step, World& world, LiveExecutor& executor,
                     const OptimizerSettings& optimizer, const RunKernels* kernels,
                     AttentionSums attention_sums = AttentionSums::fixed);

/// A ResumedRun is where a run goes on.
struct ResumedRun {
  std::int64_t step = 0;       ///< the last that is done
  bool has_optimizer = false;  ///< whether its checkpoint says the optimizer's options
};

/// Sets the state of the newest checkpoint in the folder that can be read; it returns step 0 where there is
/// none. Newer ones are set aside. What it has learned of kernels goes to `kernels`, where that is not null.
/// Notes go to standard error. Called by all processes of the world, of which each looks at some of its
/// files; each rank then reads its part.
/// @throws Error (input) naming what differs where it is of another run, or the tensor that it lacks, and
/// where there are checkpoints but none can be read; as keep_settings(), which sets `optimizer`.
ResumedRun resume_training(const std::string& folder, const RunIdentity& run, const Values& values,
                           OptimizerChoice& optimizer, World& world, LiveExecutor& executor,
                           RunKernels* kernels);

/// Refuses a folder that some process of a world does not see as the leading one does, or cannot write to, as
/// where machines have disks of their own: a checkpoint could not be completed there. It waits for what a
/// network's disk shows late: NFS looks at a folder anew after 30 to 60 s. All processes call it; the folder
/// is there in the leading one.
/// @throws Error (output) with the rank and machine
void require_seen_by_all(World& world, const std::string& folder,
                         std::chrono::milliseconds longest = std::chrono::minutes(1));

/// Makes the folder, which is this run's as long as it holds what is returned. Checkpoints are written each
/// `every` steps (0: no others) and of `last_step`.
/// @throws Error (output) if the folder cannot be made or written to, or something else has the name of a
/// checkpoint; Error (input) for checkpoints of an earlier version; Error (usage) if another run has it, or
/// if it has checkpoints already and the run is not to go on from them.
FolderLock prepare_checkpoints(const std::string& folder, bool resume, std::int64_t last_step,
                               std::int64_t every);

}  // namespace dflop
