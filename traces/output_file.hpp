// Outputs that are either complete or not there, and gzip.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dflop {

/// Writes a file: first to a temporary one beside it, which then takes its place, so that a failure leaves
/// what was there before. Compressed if `path` ends in ".gz". Pipes and devices, as /dev/stdout, are written
/// to directly.
/// @throws Error (output) with the path and the system's reason.
void write_file_atomically(const std::string& path, std::string_view bytes);

/// gzip without a time stamp: the same bytes in give the same bytes out.
std::string gzip(std::string_view bytes);

/// Unpacked text of one file, far beyond any real one; guards against a small file that unpacks to fill the
/// memory.
inline constexpr std::int64_t kLongestUnpacked = std::int64_t{4} << 30;

/// `bytes` unpacked if they begin as gzip does, else as they are. `file` is for the error.
/// @throws Error (input) for a truncated or corrupt stream, or one of more than `longest` bytes.
std::string gunzip_if_needed(std::string bytes, const std::string& file,
                             std::int64_t longest = kLongestUnpacked);

}  // namespace dflop
