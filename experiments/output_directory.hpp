// Folders that a command fills at its end.
#pragma once

#include <string>

namespace dflop {

/// Makes the folder before the long part, so that one that cannot be written is refused at once. `file` is
/// one that will stand in it.
/// @throws Error (output) with the folder or file and the system's reason.
void make_output_directory(const std::string& directory, const std::string& file);

}  // namespace dflop
