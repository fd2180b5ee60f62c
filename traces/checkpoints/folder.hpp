// A run's folder has its last few checkpoints, a folder each. One run at a time writes there (FolderLock).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "traces/checkpoints/index.hpp"

namespace dflop {

/// Returns where the checkpoint of a step is: "<folder>/step-00000050".
std::string step_folder(const std::string& folder, std::int64_t step);

/// Begins a checkpoint: removes what killed writers have left, and makes the folder for the files of the new
/// one, "<folder>/step-00000050.part", whose path it returns.
/// @throws Error (output)
std::string begin_checkpoint(const std::string& folder, std::int64_t step);

/// Removes the files of a checkpoint that begin_checkpoint() has begun and that cannot be finished, as far as
/// they can be removed.
void discard_checkpoint(const std::string& folder, std::int64_t step) noexcept;

/// Writes the index beside its files, for which it stands. Returns when it is on the disk.
/// @throws Error (output)
void write_checkpoint_index(const std::string& folder, const CheckpointIndex& index);

/// Ends the checkpoint of index.step, whose files are all in the folder that begin_checkpoint() has made:
/// writes the index, and gives the folder its name, under which it is complete or not there. One of the same
/// name, as one that is damaged, is replaced. Returns when all is on the disk.
/// @throws Error (output)
void finish_checkpoint(const std::string& folder, const CheckpointIndex& index);

/// Returns the paths of a folder's checkpoints, the highest step first, by their names: nothing is read.
/// There are none where there is no folder. @throws Error (input) for a folder that cannot be listed.
std::vector<std::string> step_paths(const std::string& folder);

/// Reads a checkpoint's files, or those of them that `counts` names, as CheckpointReader::verify().
/// @throws Error (input) where it is of another step than its name says, and as that
void verify_step(const std::string& path, const std::function<bool(std::size_t)>& counts = {});

/// A NewestStep is the newest checkpoint that is whole.
struct NewestStep {
  std::optional<std::string> path;  ///< none if there is none that can be read
  std::vector<std::string> notes;   ///< of each newer one that was passed over: its path and why
};

/// Finds the first of some checkpoints, the newest first, of which `verify` refuses nothing as an Error
/// (input); what else it throws goes on.
NewestStep newest_step(
    const std::vector<std::string>& paths, const std::function<void(const std::string&)>& verify =
                                               [](const std::string& path) { verify_step(path); });

/// Renames the damaged checkpoints after step `last_good`, as to "<folder>/step-00000050.unreadable": they do
/// not count as checkpoints and stay, until a checkpoint of the same step is set aside again. Returns their
/// new paths, the highest step first.
/// @throws Error (output) for one that cannot be renamed; as step_paths()
std::vector<std::string> set_aside_steps(const std::string& folder, std::int64_t last_good);

/// Returns the paths to which a run of steps 1 to `last_step` could not write its checkpoints, each `every`
/// steps (0: no others) and at the end, as something else has their name: a file, or a folder without index.
/// @throws as step_paths()
std::vector<std::string> taken_step_paths(const std::string& folder, std::int64_t last_step,
                                          std::int64_t every);

/// Removes the checkpoints before that of step `newest`, which can be read, but for the last `count` - 1 of
/// them. Newer ones stay. `count` >= 1.
/// @throws Error (output) for one that cannot be removed; as step_paths().
void keep_newest_steps(const std::string& folder, std::int64_t newest, int count);

}  // namespace dflop
