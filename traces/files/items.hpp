// This file reads the items of a partition problem from CSV with columns id, encoder_s, llm_s and,
// optionally, tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dflop {

struct ItemList {
  std::vector<std::string> ids;
  std::vector<double> encoder_s;
  std::vector<double> llm_s;
  std::vector<double> tokens;  ///< empty if the file lacks this column
};

/// Each time of an item is at most kLongestItem seconds, and an item has at most kMaxItemTokens tokens.
inline constexpr double kLongestItem = 1e9;
inline constexpr double kMaxItemTokens = 1e12;

/// Reads items in file order; columns may be in any order.
/// @throws Error (input) naming file, row and column for a missing, unknown or repeated column, a row with a
/// different number of fields, a time that is not a finite number >= 0, tokens that are not a whole number >=
/// 0, an empty or repeated id; and for a file without items.
ItemList parse_items(std::string_view csv, const std::string& file);

}  // namespace dflop
