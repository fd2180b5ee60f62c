// Whole text files are read into memory here, and packed and unpacked as gzip.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dflop {

/// Packs bytes as gzip without a time stamp: the same bytes in give the same bytes out.
std::string gzip(std::string_view bytes);

/// The unpacked text of one file has at most so many bytes, far beyond any real one; the limit guards against
/// a small file that unpacks to fill the memory.
inline constexpr std::int64_t kLongestUnpacked = std::int64_t{4} << 30;

/// Returns `bytes` unpacked if they begin as gzip does, else as they are. `file` is for the error.
/// @throws Error (input) for a truncated or corrupt stream, or one of more than `longest` bytes.
std::string gunzip_if_needed(std::string bytes, const std::string& file,
                             std::int64_t longest = kLongestUnpacked);

/// A file has at most so many bytes, far beyond any real one. The size of a file is known before it is read.
inline constexpr std::int64_t kLongestFile = std::int64_t{4} << 30;
/// A pipe or device, which may have no end, as /dev/zero, gives at most so many: all up to the limit is held
/// in memory before it is refused.
inline constexpr std::int64_t kLongestStream = std::int64_t{512} << 20;

/// Returns the bytes of a file, pipe or device, unpacked if it is a gzip one. It is opened and read once.
/// @throws Error (input) if it is missing, a directory, longer than `longest` bytes (and kLongestStream,
/// where it is no regular file), or cannot be read or unpacked.
std::string read_text_file(const std::string& path, std::int64_t longest = kLongestFile);

}  // namespace dflop
