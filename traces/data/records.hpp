// This file reads data set tables, in which each row is one Record. traces/datasets/SOURCES.md describes the
// columns.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/sample.hpp"

namespace dflop {

/// These limits apply to the values in a table. They ensure that every product and square of a Record's
/// values fits in 64 bits.
inline constexpr std::int32_t kMaxImageSide = 1'000'000;  ///< pixels
inline constexpr std::int64_t kMaxImages = 10'000;        ///< in one row of the table
inline constexpr std::int64_t kMaxFrames = 1'000'000'000;
inline constexpr std::int64_t kMaxTextTokens = 1'000'000'000;
inline constexpr double kMinSeconds = 1e-3;
inline constexpr double kMaxSeconds = 1e7;
inline constexpr double kMinFps = 1e-3;
inline constexpr double kMaxFps = 1e4;

/// Reads a table.
/// @throws Error (input) if the file cannot be read; what parse_records() throws
std::vector<Record> load_records(const std::string& path);

/// Parses a table: a header with exactly the known columns in any order, then at least one record. A UTF-8
/// byte order mark may come first, and empty lines may come last. 726.0 counts as a whole number. `file` is
/// named in errors. Safe on any bytes.
/// @throws Error (input) naming the row (its line; the header is row 1) and the column: unknown, missing or
/// repeated columns, wrong field counts, numbers that are garbage, zero, negative, not finite or outside the
/// limits of this header, fields that contradict each other, and rows that lack a field that their modality
/// needs.
std::vector<Record> parse_records(std::string_view text, const std::string& file);

}  // namespace dflop
