// Checkpoints of live training are on disk: the state of a run in one file, and the folder of its last few.
//
// A file of one checkpoint is, little endian and without gaps:
//
//     8 bytes   "DFLOPCKP"
//     4 bytes   version of this layout, 1
//     4 bytes   CRC-32 of the first 32 bytes, with zeros in place of this number, and the header
//     8 bytes   bytes of the header
//     8 bytes   bytes of the file
//     header    JSON, "dflop.checkpoint", version 1; lists the tensors, each with its place and CRC-32
//     values    of the tensors, one after the other, row by row
//
// So no byte can change, and none be lost, without the reader's notice.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/checkpoint.hpp"

namespace dflop {

/// Returns the bytes of a checkpoint file. Strings are written as UTF-8; bytes that are not come back as
/// U+FFFD.
/// @throws Error (internal) for what could not be read back: a tensor with another number of values than its
/// shape says, one that stands twice, an f32 tensor with a value that is no float, negative counts.
std::string to_bytes(const Checkpoint& checkpoint);

/// Reads a checkpoint back to the last bit. `file` is the bytes' place for errors. Sizes are held against the
/// bytes that are there before memory is taken for them.
/// @throws Error (input) for bytes that are no checkpoint, one of another version, or one that is cut short
/// or damaged anywhere.
Checkpoint parse_checkpoint(std::string_view bytes, const std::string& file);

/// Writes a file that is complete or not there, and returns when it is on the disk. What is cut off by a
/// power failure before that may have the final name, and read_checkpoint() refuses it.
/// @throws Error (output) with the path and the system's reason, or for a path that ends in ".gz"; as
/// to_bytes().
void write_checkpoint(const std::string& path, const Checkpoint& checkpoint);

/// Reads one file. @throws Error (input) for a file that cannot be read; as parse_checkpoint().
Checkpoint read_checkpoint(const std::string& path);

/// Returns where the checkpoint of a step is: "<folder>/step-00000050.ckpt". What has such a name and is no
/// regular file, nor a link to one, is no checkpoint.
std::string checkpoint_path(const std::string& folder, std::int64_t step);

/// A NewestCheckpoint is the newest checkpoint of a folder.
struct NewestCheckpoint {
  std::optional<std::string> path;  ///< none if there is no checkpoint that can be read, or no folder
  std::vector<std::string> notes;   ///< of each newer one that was passed over: its path and why
};

/// Finds the checkpoint of the highest step, by its name, that can be read. It is read in full.
/// @throws Error (input) for a folder that cannot be listed.
NewestCheckpoint newest_checkpoint(const std::string& folder);

/// Returns the paths to which a run of steps 1 to `last_step` could not write its checkpoints, each `every`
/// steps (0: no others) and at the end, as something else has their name.
/// @throws as newest_checkpoint()
std::vector<std::string> taken_checkpoint_paths(const std::string& folder, std::int64_t last_step,
                                                std::int64_t every);

/// Removes all but the newest checkpoint that can be read and the `count` - 1 before it, and what killed
/// writers left of checkpoints up to that one. Newer ones that cannot be read stay, as does everything where
/// none can be read. For the one run that writes to the folder. `count` >= 1.
/// @throws Error (output) for a file that cannot be removed; as newest_checkpoint().
void keep_newest(const std::string& folder, int count);

}  // namespace dflop
