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
  /// A row for each stage that reduces gradients. It has the numbers of reductions, groups and nodes; the
  /// time of the longest reduction if nothing else used the links; the parts of this time; and its main
  /// limit.
  Table by_stage;
  /// A line for each bandwidth of the cluster that does not limit any reduction: a higher value would not
  /// help. The line names the actual limit.
  std::vector<std::string> idle_bandwidths;
};

/// Explains the reductions of a program. If it has none, the table and the lines are empty.
ReductionExplanation explain_reductions(const Program& program, const ClusterSpec& cluster);

/// Returns the table and the lines as text that follows another table, with the heading "what WHICH wait for"
/// (WHICH is `which`); empty if there are no reductions.
std::string reductions_text(std::string_view which, const ReductionExplanation& reductions);

}  // namespace dflop
