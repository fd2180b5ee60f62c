// Assignments that look at no cost.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "solver/bins.hpp"

namespace dflop {

/// Cuts the items, in the given order, into consecutive bins whose counts differ by at most one, the larger
/// ones first. Where an item does not fit its bin under the caps, the next bin with room takes it, after the
/// last the first.
/// @return the bin of each item; empty where an item found no bin or a bin no item.
std::vector<std::int32_t> place_in_order(const BinProblem& problem, std::span<const std::int32_t> order);

}  // namespace dflop
