// The time of a whole module for a microbatch of mean samples, for rules that see only one sample.
#pragma once

#include <span>
#include <vector>

#include "core/iteration/planner.hpp"

namespace dflop {

/// ModuleSeconds are the times of forward and backward of a microbatch in all layers of a module, on one tp
/// group.
struct ModuleSeconds {
  double encoder = 0;
  double llm = 0;
};

/// Returns the times, by the request's cost model, of both modules with this tp for copies of the mean sample
/// of the profile. Counts are rounded up.
/// @pre the profile has a sample
ModuleSeconds mean_module_seconds(const PlanRequest& request, std::span<const Sample> profile, int tp,
                                  double samples);

/// Returns all divisors of a number in increasing order.
std::vector<int> divisors(int number);

}  // namespace dflop
