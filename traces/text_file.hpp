// Reads whole text files.
#pragma once

#include <cstdint>
#include <string>

namespace dflop {

/// Bytes of one file, far beyond any real one; guards against an endless one, as /dev/zero.
inline constexpr std::int64_t kLongestFile = std::int64_t{4} << 30;

/// The bytes of a file, unpacked if it is a gzip one.
/// @throws Error (input) if it is missing, a directory, longer than `longest` bytes, or cannot be read or
/// unpacked.
std::string read_text_file(const std::string& path, std::int64_t longest = kLongestFile);

}  // namespace dflop
