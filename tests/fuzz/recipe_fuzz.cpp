#include <string>

#include "tests/fuzz/fuzz_target.hpp"
#include "traces/files/recipe.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return dflop::run_fuzz_target(data, size, [size](std::string_view text) {
    std::size_t bytes = 0;
    for (const dflop::RecipeEntry& entry : dflop::parse_recipe(std::string(text), "fuzz.yaml")) {
      dflop::require(entry.line >= 1 && !entry.values.empty());
      for (const std::string& value : entry.values) bytes += value.size();
    }
    dflop::require(bytes <= size);  // never more than the input, even with aliases
  });
}
