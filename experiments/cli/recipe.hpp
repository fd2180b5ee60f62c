// A recipe is a JSON file with the values of a command's options.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "experiments/cli/option_values.hpp"

namespace dflop {

/// Adds the options --recipe and --print-recipe.
void add_recipe_options(Options& options);

/// RecipeArguments are command-line arguments, some of which may come from a recipe.
struct RecipeArguments {
  std::vector<std::string> arguments;
  /// "file:line" of each option in the recipe, by its name without dashes.
  std::map<std::string, std::string> places = {};
};

/// Adds the options of a recipe to the arguments. The arguments name the recipe with --recipe, or as an
/// argument before all options. An option in the arguments replaces the same option in the recipe.
/// @throws Error (usage) for wrong arguments, Error (input) with "file:line: key" for unknown keys and wrong
/// values
RecipeArguments with_recipe(const Options& options, std::vector<std::string> arguments);

/// Returns a recipe (JSON) with the options that were given on the command line or in a recipe.
std::string to_recipe(const Values& values);

}  // namespace dflop
