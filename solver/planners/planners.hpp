// Planners are found by name.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "core/iteration/planner.hpp"

namespace dflop {

/// PlannerKind is a row of the table of planners: what the command line says of one, and how it is made.
struct PlannerKind {
  std::string_view name;
  bool searches = false;  ///< it obeys all of SearchOptions
  /// It chooses parallelism and microbatches alone, for the recomputation of PlanRequest::options:
  /// with_best_parts() finds the rest.
  bool leaves_parts = false;
  /// It is asked for a plan for each recomputation that is open. The published system plans for full
  /// recomputation and nothing else.
  bool plans_for_each_recomputation = false;
  std::unique_ptr<Planner> (*make)();
};

/// Returns the planner of a name. @throws Error (usage) for an unknown name.
const PlannerKind& find_planner(std::string_view name);

inline std::unique_ptr<Planner> make_planner(std::string_view name) {
  return find_planner(name).make();
}

/// Returns the names of all planners, in the order in which they are listed.
std::vector<std::string_view> planner_names();

}  // namespace dflop
