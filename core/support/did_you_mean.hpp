// did_you_mean() suggests a known name in errors about an unknown one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dflop {

/// Returns "; did you mean 'compare'?" with a suggestion: the shortest known name that begins with `found`,
/// if `found` has at least three letters; otherwise the known name with the fewest typing mistakes (a letter
/// too many, missing or wrong, or two letters swapped), the first one if several tie. Empty if more than a
/// third of the letters would be mistakes.
std::string did_you_mean(std::string_view found, const std::vector<std::string_view>& known);

}  // namespace dflop
