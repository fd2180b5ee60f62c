// gzip, packed and unpacked in memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dflop {

/// gzip without a time stamp: the same bytes in give the same bytes out.
std::string gzip(std::string_view bytes);

/// Bytes of one file's unpacked text, far beyond any real one; guards against a small file that unpacks to
/// fill the memory.
inline constexpr std::int64_t kLongestUnpacked = std::int64_t{4} << 30;

/// `bytes` unpacked if they begin as gzip does, else as they are. `file` is for the error.
/// @throws Error (input) for a truncated or corrupt stream, or one of more than `longest` bytes.
std::string gunzip_if_needed(std::string bytes, const std::string& file,
                             std::int64_t longest = kLongestUnpacked);

}  // namespace dflop
