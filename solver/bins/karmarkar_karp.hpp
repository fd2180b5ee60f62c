// The largest differencing method, which training frameworks use for sequence lengths.
#pragma once

#include <cstdint>
#include <vector>

#include "solver/bins.hpp"

namespace dflop {

/// Karmarkar and Karp's differencing for `bins` sets (1982), as verl balances sequence lengths: on one
/// dimension only, the LLM time. Encoder times and caps are not looked at. A bin that stays empty is given an
/// item of the bin with most items, unless it may be empty. Memory grows with the items, not with the bins.
/// @return the bin of each item.
std::vector<std::int32_t> karmarkar_karp(const BinProblem& problem);

}  // namespace dflop
