// Longest processing time first, in two dimensions.
#pragma once

#include <cstdint>
#include <vector>

#include "solver/bins.hpp"

namespace dflop {

/// Takes items by falling max(encoder, LLM) time and puts each into the bin whose larger load is then
/// smallest; among equal ones into the one with the smallest sum of loads, then into the first. No bin stays
/// empty unless that is allowed; only bins with room under all caps are taken. With a shared encoder a bin's
/// encoder load is that of its microbatch.
/// @return the bin of each item; empty where an item found no bin with room. There must be at least as many
/// items as bins unless bins may be empty.
std::vector<std::int32_t> lpt(const BinProblem& problem);

}  // namespace dflop
