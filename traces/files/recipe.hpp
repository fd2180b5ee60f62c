// A recipe is a YAML (or JSON) file with the options of a command.
#pragma once

#include <string>
#include <vector>

namespace dflop {

/// A RecipeEntry is one option in the file.
struct RecipeEntry {
  std::string key;
  std::vector<std::string> values;  ///< one value, or the elements of a list
  int line = 0;                     ///< line of the key, counting from 1
};

/// Reads a flat map from keys to values or lists of values. All values are read as text; the command
/// validates them.
/// @throws Error (input) with "file:line" for anything but a flat map, for a repeated key, for a key without
/// a value, and for aliases that expand beyond the text's size
std::vector<RecipeEntry> parse_recipe(const std::string& text, const std::string& file);

}  // namespace dflop
