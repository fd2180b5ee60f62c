// Reductions says what the gradient reductions of a program wait for: which link, or latency.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/cluster.hpp"
#include "core/program.hpp"
#include "experiments/cli/table.hpp"

namespace dflop {

struct ReductionExplanation {
  /// A row for each stage that reduces gradients: how often, over how many groups and nodes, how long its
  /// longest reduction takes with nothing else on the links, how that time is shared, and what binds it most.
  Table by_stage;
  /// A line for each bandwidth of the cluster of which more would shorten no reduction, with what binds in
  /// its place.
  std::vector<std::string> idle_bandwidths;
};

/// Explains the reductions of a program; all is empty where nothing is reduced.
ReductionExplanation explain_reductions(const Program& program, const ClusterSpec& cluster);

/// Returns both as text that follows another table, under "what WHICH wait for"; nothing where nothing is
/// reduced.
std::string reductions_text(std::string_view which, const ReductionExplanation& reductions);

}  // namespace dflop
