// make_plan() plans with any planner, on batches that show how much memory the data may need.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/iteration/planner.hpp"
#include "core/plan.hpp"
#include "experiments/studies/target.hpp"

namespace dflop {

/// Tables put this mark on a plan whose layout has not been confirmed on GPUs.
inline constexpr std::string_view kUnconfirmed = " *";

/// Returns whether plans with this layout have never run on GPUs in the predicted way.
constexpr bool is_unconfirmed(Layout layout) {
  return layout == Layout::shared;
}

/// Returns describe(plan), with kUnconfirmed if it applies.
std::string marked(const Plan& plan);

/// Returns whether a module's heads can be split over tp ranks without padding; KV heads may be copied.
bool divides_heads(const TransformerSpec& module, int tp);

/// A PlanningInput holds everything that a planner plans with. All referenced objects must outlive it.
struct PlanningInput {
  const Target& target;
  const std::vector<Sample>& samples;
  const std::vector<Batch>& batches;
  int gbs = 1;
  std::uint64_t seed = 1;
  PlanOptions options = {};
  SearchOptions search = {};
  /// Whether the parts that neither the planner nor the search options determine are chosen by simulation
  /// (solver/planners/trials/candidates.hpp).
  bool best_parts = false;
};

/// Plans with the named planner, with a progress bar. A search keeps its plans within memory when it
/// schedules them, and marks them so that later schedulers do the same. A plan whose tp the search options do
/// not allow counts as infeasible.
PlanResult make_plan(const std::string& planner, const PlanningInput& input);

}  // namespace dflop
