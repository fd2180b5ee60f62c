// A recipe is a file with options of a command.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "experiments/cli/option_values.hpp"

namespace dflop {

/// Adds the options --recipe and --print-recipe.
void add_recipe_options(Options& options);

/// RecipeArguments are arguments, some of which come from a recipe.
struct RecipeArguments {
  std::vector<std::string> arguments;
  std::map<std::string, std::string> places = {};  ///< "file:line" by option (without dashes) of the recipe
};

/// Returns the arguments together with the recipe's. They name the recipe with --recipe or as an argument
/// before all options. An option on the command line replaces the recipe's.
/// @throws Error (usage) for wrong arguments, Error (input) with "file:line: key" for unknown keys and wrong
/// values
RecipeArguments with_recipe(const Options& options, std::vector<std::string> arguments);

/// Returns the options given on the command line or in a recipe as a recipe in JSON.
std::string to_recipe(const Values& values);

}  // namespace dflop
