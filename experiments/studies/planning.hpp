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

/// The mark in tables for a plan whose layout has not been confirmed on GPUs.
inline constexpr std::string_view kUnconfirmed = " *";

/// Returns whether predictions for this layout have never been confirmed by runs on GPUs.
constexpr bool is_unconfirmed(Layout layout) {
  return layout == Layout::shared;
}

/// Returns describe(plan), with kUnconfirmed if it applies.
std::string marked(const Plan& plan);

/// Returns whether a module's heads can be split over tp ranks without padding. KV heads may be copied to
/// several ranks.
bool divides_heads(const TransformerSpec& module, int tp);

/// A PlanningInput holds the inputs of a planner. All referenced objects must outlive it.
struct PlanningInput {
  const Target& target;
  const std::vector<Sample>& samples;
  const std::vector<Batch>& batches;
  int gbs = 1;
  std::uint64_t seed = 1;
  PlanOptions options = {};
  SearchOptions search = {};
  /// Whether simulations choose the settings that neither the planner nor the search options determine
  /// (solver/planners/trials/candidates.hpp).
  bool best_parts = false;
};

/// Plans with the named planner, with a progress bar. A search schedules its plans within memory, and marks
/// them so that later schedulers also respect memory. If the search options do not allow the plan's tp, the
/// result is infeasible.
PlanResult make_plan(const std::string& planner, const PlanningInput& input);

}  // namespace dflop
