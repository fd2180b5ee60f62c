// Which bin becomes which microbatch of which dp rank. Min-max partition does not say, and the makespan
// depends on it.
#pragma once

#include <cstdint>
#include <vector>

#include "solver/bins.hpp"

namespace dflop {

/// Renames bins so that each microbatch holds bins of like load on all dp ranks, since the encoder they share
/// makes them wait for each other; dp ranks take turns at getting the larger ones, so that their sums are
/// like as well. Microbatches rise to the largest in the middle and fall again: the first fills the pipeline
/// and the last drains it, and both do so faster when small. Where the bins of a microbatch belong together,
/// as they share an encoder load or a cap, it stays whole. No load changes, so C_max is as before. `bin` =
/// one bin per item, bin = microbatch * dp + dp rank.
void arrange_bins(const BinProblem& problem, std::vector<std::int32_t>& bin);

}  // namespace dflop
