// The best plans of a search side by side, with where their time goes.
#pragma once

#include <string>

#include "core/iteration/planner.hpp"
#include "experiments/cli/table.hpp"

namespace dflop {

/// One row a plan, best first: objective, bound, peak memory, the four shares of the mean iteration and what
/// it loses to the best by. Empty where the planner lists none.
Table plan_ranking(const PlanResult& result);

/// The ranking, the bound and its gap as JSON, schema "dflop.plan_ranking".
std::string ranking_json(const PlanResult& result);

/// "no plan of the space has an objective below 19.1 s, so that the best is within 3.2 % of it", or that
/// nothing is proven.
std::string describe_proof(const PlanResult& result);

}  // namespace dflop
