// Errors about an unknown name offer the known one that was probably meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dflop {

/// Returns "; did you mean 'compare'?" with the shortest known name that begins with what was found, from
/// three letters on; else with the one that the fewest typing mistakes lead to (a letter
/// too many, missing, wrong, or two changed places), of equal ones the first; nothing where more than a third
/// of the letters would be mistakes.
std::string did_you_mean(std::string_view found, const std::vector<std::string_view>& known);

}  // namespace dflop
