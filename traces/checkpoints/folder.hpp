// These functions manage a run's checkpoint folder, which holds the last few checkpoints, each in its own
// folder. Only one run at a time writes there (FolderLock).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "traces/checkpoints/index.hpp"

namespace dflop {

/// Returns the path of a step's checkpoint: "<folder>/step-00000050".
std::string step_folder(const std::string& folder, std::int64_t step);

/// Begins a checkpoint: removes leftovers of killed writers and makes the folder for the new files,
/// "<folder>/step-00000050.part", whose path it returns.
/// @throws Error (output)
std::string begin_checkpoint(const std::string& folder, std::int64_t step);

/// Removes the files of a checkpoint that begin_checkpoint() began, because it cannot be finished. Ignores
/// failures.
void discard_checkpoint(const std::string& folder, std::int64_t step) noexcept;

/// Writes the index into `folder`, which holds the files that the index describes. Returns when the index is
/// on disk.
/// @throws Error (output)
void write_checkpoint_index(const std::string& folder, const CheckpointIndex& index);

/// Finishes the checkpoint of index.step, whose files are all in the folder that begin_checkpoint() made:
/// writes the index and renames the folder, so that the checkpoint is either complete or absent. Replaces an
/// existing checkpoint of that name, such as a damaged one. Returns when everything is on disk.
/// @throws Error (output)
void finish_checkpoint(const std::string& folder, const CheckpointIndex& index);

/// Returns the paths of a folder's checkpoints, highest step first. Recognizes them by name and reads no
/// file. Returns none if the folder is missing. @throws Error (input) if the folder cannot be listed.
std::vector<std::string> step_paths(const std::string& folder);

/// Verifies a checkpoint by reading all its files, or only those whose indices `counts` selects.
/// @throws Error (input) if the step in its index and the step in its name differ; what CheckpointReader
/// throws
void verify_step(const std::string& path, const std::function<bool(std::size_t)>& counts = {});

/// A NewestStep is the newest intact checkpoint.
struct NewestStep {
  std::optional<std::string> path;  ///< empty if no checkpoint can be read
  std::vector<std::string> notes;   ///< for each newer, skipped checkpoint: its path and why it was skipped
};

/// Returns the first checkpoint of `paths`, which are sorted newest first, for which `verify` throws no Error
/// (input). Other exceptions propagate.
NewestStep newest_step(
    const std::vector<std::string>& paths, const std::function<void(const std::string&)>& verify =
                                               [](const std::string& path) { verify_step(path); });

/// Renames the damaged checkpoints after step `last_good`, for example to
/// "<folder>/step-00000050.unreadable". They no longer count as checkpoints. A renamed folder stays until
/// another checkpoint of the same step is set aside. Returns their new paths, highest step first.
/// @throws Error (output) if a folder cannot be renamed; what step_paths() throws
std::vector<std::string> set_aside_steps(const std::string& folder, std::int64_t last_good);

/// Returns the paths to which a run of steps 1 to `last_step` could not write its checkpoints, because a file
/// or a folder without an index has that name. Such a run writes a checkpoint after every `every` steps, if
/// `every` is not 0, and after the last step.
/// @throws what step_paths() throws
std::vector<std::string> taken_step_paths(const std::string& folder, std::int64_t last_step,
                                          std::int64_t every);

/// Removes old checkpoints. Keeps the checkpoint of step `newest`, which must be readable, the `count` - 1
/// checkpoints before it, and all newer ones. `count` >= 1.
/// @throws Error (output) if a checkpoint cannot be removed; what step_paths() throws
void keep_newest_steps(const std::string& folder, std::int64_t newest, int count);

}  // namespace dflop
