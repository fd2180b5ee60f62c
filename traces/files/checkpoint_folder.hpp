// The folder of a run's last few checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dflop {

// What has the name of a checkpoint and is no regular file, nor a link to one, is none.

/// Where the checkpoint of a step is: "<folder>/step-00000050.ckpt".
std::string checkpoint_path(const std::string& folder, std::int64_t step);

struct NewestCheckpoint {
  std::optional<std::string> path;  ///< none if there is no checkpoint that can be read, or no folder
  std::vector<std::string> notes;   ///< of each newer one that was passed over: its path and why
};

/// The checkpoint of the highest step, by its name, that can be read. It is read in full.
/// @throws Error (input) for a folder that cannot be listed.
NewestCheckpoint newest_checkpoint(const std::string& folder);

/// Paths to which a run of steps 1 to `last_step` could not write its checkpoints, each `every` steps (0: no
/// others) and at the end, as something else has their name.
/// @throws as newest_checkpoint()
std::vector<std::string> taken_checkpoint_paths(const std::string& folder, std::int64_t last_step,
                                                std::int64_t every);

/// Removes all but the newest checkpoint that can be read and the `count` - 1 before it, and what killed
/// writers left of checkpoints up to that one. Newer ones that cannot be read stay, as does everything where
/// none can be read. For the one run that writes to the folder. `count` >= 1.
/// @throws Error (output) for a file that cannot be removed; as newest_checkpoint().
void keep_newest(const std::string& folder, int count);

}  // namespace dflop
