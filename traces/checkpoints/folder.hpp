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

/// Removes the files of a checkpoint that begin_checkpoint() began and that cannot be finished. Files that
/// cannot be removed stay.
void discard_checkpoint(const std::string& folder, std::int64_t step) noexcept;

/// Writes the index next to the files that it describes. Returns when the index is on disk.
/// @throws Error (output)
void write_checkpoint_index(const std::string& folder, const CheckpointIndex& index);

/// Finishes the checkpoint of index.step, whose files are all in the folder that begin_checkpoint() made:
/// writes the index and renames the folder, so that the checkpoint is either complete or absent. Replaces an
/// existing checkpoint of that name, such as a damaged one. Returns when everything is on disk.
/// @throws Error (output)
void finish_checkpoint(const std::string& folder, const CheckpointIndex& index);

/// Returns the paths of a folder's checkpoints, highest step first. It recognizes them by their names and
/// reads no file. A missing folder has no checkpoints. @throws Error (input) for a folder that cannot be
/// listed.
std::vector<std::string> step_paths(const std::string& folder);

/// Reads and verifies the files of the checkpoint at `path`, like CheckpointReader::verify(). If `counts` is
/// set, it verifies only the files whose indices `counts` selects.
/// @throws what CheckpointReader and its verify() throw, and Error (input) if the checkpoint's step differs
/// from the step in its name
void verify_step(const std::string& path, const std::function<bool(std::size_t)>& counts = {});

/// A NewestStep is the newest intact checkpoint.
struct NewestStep {
  std::optional<std::string> path;  ///< empty if no checkpoint can be read
  std::vector<std::string> notes;   ///< for each newer, skipped checkpoint: its path and why it was skipped
};

/// Returns the newest intact checkpoint: the first of `paths` for which `verify` throws no Error (input).
/// `paths` lists the newest checkpoint first. Other exceptions propagate.
NewestStep newest_step(
    const std::vector<std::string>& paths, const std::function<void(const std::string&)>& verify =
                                               [](const std::string& path) { verify_step(path); });

/// Renames the damaged checkpoints after step `last_good`, for example to
/// "<folder>/step-00000050.unreadable". The renamed folders no longer count as checkpoints. Each stays until
/// another checkpoint of the same step is renamed in this way. Returns the new paths, highest step first.
/// @throws Error (output) for a checkpoint that cannot be renamed; what step_paths() throws
std::vector<std::string> set_aside_steps(const std::string& folder, std::int64_t last_good);

/// Returns the paths to which a run of steps 1 to `last_step` could not write its checkpoints, because a file
/// or a folder without an index has that name. The run writes a checkpoint every `every` steps (0: only at
/// the end) and at the end.
/// @throws what step_paths() throws
std::vector<std::string> taken_step_paths(const std::string& folder, std::int64_t last_step,
                                          std::int64_t every);

/// Removes old checkpoints. It keeps the checkpoint of step `newest`, which must be readable, the `count` - 1
/// checkpoints before it, and all newer ones. `count` is at least 1.
/// @throws Error (output) for a checkpoint that cannot be removed; what step_paths() throws
void keep_newest_steps(const std::string& folder, std::int64_t newest, int count);

}  // namespace dflop
