// What dflop replay prints.
#pragma once

#include <optional>
#include <vector>

#include "experiments/cli/table.hpp"
#include "experiments/studies/replay_runs.hpp"

namespace dflop {

/// The runs of all iterations that are replayed; replays[i][k] has the same name for each i.
using Replays = std::vector<std::vector<ReplayRun>>;

/// Prints a row for each run, how the groups of the first iteration spent the first two, and where the prices
/// of another plan come from, if there is one. `distribution`: of the last row, where it was repeated.
void print_replays(Format format, const Replays& replays, const PricedParts* prices,
                   const std::optional<Table>& distribution);

}  // namespace dflop
