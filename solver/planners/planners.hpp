// This header finds planners by name.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "core/iteration/planner.hpp"

namespace dflop {

/// A PlannerKind is a row of the table of planners. It says how the command line treats a planner, and makes
/// it.
struct PlannerKind {
  std::string_view name;
  bool searches = false;  ///< the planner obeys all of SearchOptions
  /// If true, the planner chooses only parallelism and microbatches, for the recomputation of
  /// PlanRequest::options; with_best_parts() chooses the rest.
  bool leaves_parts = false;
  /// If true, the planner makes a plan for each permitted recomputation. False for the published planners,
  /// because the published system only plans for full recomputation.
  bool plans_for_each_recomputation = false;
  std::unique_ptr<Planner> (*make)();
};

/// Returns the planner with this name. @throws Error (usage) for an unknown name.
const PlannerKind& find_planner(std::string_view name);

/// Returns the names of all planners, in listing order.
std::vector<std::string_view> planner_names();

}  // namespace dflop
