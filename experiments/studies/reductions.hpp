// This file explains what bounds the gradient reductions of a program: a link's bandwidth, or latency.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/cluster.hpp"
#include "core/program.hpp"
#include "experiments/cli/table.hpp"

namespace dflop {

struct ReductionExplanation {
  /// A row for each stage that reduces gradients: how often, over how many groups and nodes, the time of its
  /// longest reduction with nothing else on the links, its parts, and what bounds it most.
  Table by_stage;
  /// A line for each bandwidth of the cluster that would shorten no reduction if it were higher, with what
  /// bounds them instead.
  std::vector<std::string> idle_bandwidths;
};

/// Explains the reductions of a program; everything is empty if it has none.
ReductionExplanation explain_reductions(const Program& program, const ClusterSpec& cluster);

/// Returns both as text that follows another table, under "what WHICH wait for"; empty if there are no
/// reductions.
std::string reductions_text(std::string_view which, const ReductionExplanation& reductions);

}  // namespace dflop
