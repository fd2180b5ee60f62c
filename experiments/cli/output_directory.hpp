// Folders that a command fills at its end.
#pragma once

#include <string>

namespace dflop {

/// Before the long part, so that a folder that cannot be made or written to is refused at once. Makes none,
/// as a run that is stopped has nothing to put there. `file` is one that will stand in it.
/// @throws Error (output) with the folder or file and the system's reason.
void check_output_directory(const std::string& directory, const std::string& file);

/// Makes the folder where it is not there yet, with those that it is in.
/// @throws Error (output) with the folder and the system's reason.
void make_output_directory(const std::string& directory);

}  // namespace dflop
