// The plans of a grid are completed and checked here.
#pragma once

#include <string>
#include <vector>

#include "core/cluster.hpp"
#include "core/model.hpp"
#include "traces/files/grid.hpp"

namespace dflop {

struct NamedPlan {
  std::string name;
  Plan plan;
};

/// Reads the plans that stand in files, gives the stages of the others their layers, as evenly as they go,
/// and all of them `gbs`. `file` is the grid's path, from which plan files are found and errors tell.
/// @throws Error (input) naming the plan that is for another model or cluster, does not fit the model, the
/// cluster or `gbs`, or cannot be run live; also where the model cannot.
std::vector<NamedPlan> complete_plans(const PlanGrid& grid, const std::string& file, int gbs,
                                      const ModelSpec& model, const ClusterSpec& cluster);

}  // namespace dflop
