// Cells of sweeps are run here: each is what `dflop plan`, `dflop schedule` and `dflop simulate` give, one by
// one.
#pragma once

#include <functional>
#include <vector>

#include "experiments/sweep/spec.hpp"

namespace dflop {

/// Runs the groups on all cores. `done` gets each cell with its measures, from any thread, one at a time for
/// each thread. A cell that cannot be run has status "failed" and the error as its reason; one without a
/// plan, out of memory or whose run does not end is "infeasible".
/// @throws what `done` throws, after which no more cells begin.
void run_sweep(const std::vector<PlanGroup>& groups, const std::function<void(const SweepRow&)>& done);

}  // namespace dflop
