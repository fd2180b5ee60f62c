// Reads whole text files.
#pragma once

#include <cstdint>
#include <string>

namespace dflop {

/// Bytes of one file, far beyond any real one. The size of a file is known before it is read.
inline constexpr std::int64_t kLongestFile = std::int64_t{4} << 30;
/// Of a pipe or device, which may have no end, as /dev/zero: all up to the limit is held in memory before it
/// is refused.
inline constexpr std::int64_t kLongestStream = std::int64_t{512} << 20;

/// The bytes of a file, pipe or device, unpacked if it is a gzip one. It is opened and read once.
/// @throws Error (input) if it is missing, a directory, longer than `longest` bytes (and kLongestStream,
/// where it is no regular file), or cannot be read or unpacked.
std::string read_text_file(const std::string& path, std::int64_t longest = kLongestFile);

}  // namespace dflop
