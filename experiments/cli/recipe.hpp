// Options of a command may stand in a file, its recipe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "experiments/cli/option_values.hpp"

namespace dflop {

/// Adds --recipe and --print-recipe, by which a command takes recipes.
void add_recipe_options(Options& options);

/// RecipeArguments are arguments of which some are from a recipe.
struct RecipeArguments {
  std::vector<std::string> arguments;
  std::map<std::string, std::string> places = {};  ///< "file:line" of the options from there, without dashes
};

/// Returns the arguments with those of the recipe that they name, by --recipe or before all options. Of an
/// option in both the recipe's is left out.
/// @throws Error (usage) for wrong arguments, Error (input) with "file:line: key" for keys that are no
/// options and values that are not theirs
RecipeArguments with_recipe(const Options& options, std::vector<std::string> arguments);

/// Returns the options that were given, on the command line or in a recipe, as a recipe in JSON.
std::string to_recipe(const Values& values);

}  // namespace dflop
