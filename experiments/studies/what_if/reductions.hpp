// This file explains what limits the gradient reductions of a program: the bandwidth of a link, or latency.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/cluster.hpp"
#include "core/program.hpp"
#include "experiments/cli/table.hpp"

namespace dflop {

struct ReductionExplanation {
  /// A row for each stage that reduces gradients: the number of reductions, groups and nodes, the time of the
  /// longest reduction with nothing else on the links, its parts, and its main limit.
  Table by_stage;
  /// A line for each bandwidth of the cluster that would not shorten any reduction if it were higher, with
  /// the actual limit.
  std::vector<std::string> idle_bandwidths;
};

/// Explains the reductions of a program; everything is empty if it has none.
ReductionExplanation explain_reductions(const Program& program, const ClusterSpec& cluster);

/// Returns both as text that follows another table, under "what WHICH wait for"; empty if there are no
/// reductions.
std::string reductions_text(std::string_view which, const ReductionExplanation& reductions);

}  // namespace dflop
