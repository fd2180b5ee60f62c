// Reads whole text files.
#pragma once

#include <string>

namespace dflop {

/// The bytes of a file.
/// @throws Error (input) if it is missing, a directory or cannot be read.
std::string read_text_file(const std::string& path);

}  // namespace dflop
