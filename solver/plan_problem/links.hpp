// What surrounds the compute of a plan's pipeline: messages between stages, and the ends of ranks.
#pragma once

#include <vector>

#include "core/cost_model.hpp"
#include "core/plan.hpp"

namespace dflop {

/// fixed_s + per_byte * bytes, in seconds.
struct LinkTime {
  double fixed_s = 0;
  double per_byte = 0;
};

struct PlanLinks {
  std::vector<LinkTime> forward;   ///< per stage boundary; zero inside a rank
  std::vector<LinkTime> backward;  ///< from the stage behind the boundary
  std::vector<double> tail_s;      ///< per pipeline rank, from its last backward to its end, at least
};

/// Of all dp ranks (and of all pairs, in a reshard) the least, with nothing else on the links. Times of
/// messages are taken to be affine in their bytes. Of gradients in buckets, which overlap with the last
/// backward, the last one counts, that is complete only then.
PlanLinks plan_links(const Plan& plan, const ModelSpec& model, const CostModel& cost);

}  // namespace dflop
