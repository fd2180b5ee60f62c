// Reductions says what the gradient reductions of a program wait for: which link, or latency.
#pragma once

#include <string>
#include <vector>

#include "core/cluster.hpp"
#include "core/program.hpp"
#include "experiments/cli/table.hpp"

namespace dflop {

/// Returns a row for each stage that reduces gradients: how often, over how many groups and nodes, how long
/// its longest reduction takes with nothing else on the links, how that time is shared, and by what it is
/// bound most.
Table reduction_table(const Program& program, const ClusterSpec& cluster);

/// Returns a line for each bandwidth of the cluster of which more would shorten no reduction, with what binds
/// in its place. Empty where nothing is reduced.
std::vector<std::string> idle_bandwidths(const Program& program, const ClusterSpec& cluster);

}  // namespace dflop
