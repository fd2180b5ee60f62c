// A recipe has the options of a command in a file: YAML, of which JSON is a part.
#pragma once

#include <string>
#include <vector>

namespace dflop {

/// A RecipeEntry is one option as it is in the file.
struct RecipeEntry {
  std::string key;
  std::vector<std::string> values;  ///< one, or those of a list
  int line = 0;                     ///< of the key, from 1 on
};

/// Reads a flat map of keys to values or lists of values; values are texts, whatever they look like. What
/// they may be is the command's to say.
/// @throws Error (input) with "file:line" for what is no such map, for a key that stands twice, a key without
/// a value, and for aliases that make more of the text than there is
std::vector<RecipeEntry> parse_recipe(const std::string& text, const std::string& file);

}  // namespace dflop
