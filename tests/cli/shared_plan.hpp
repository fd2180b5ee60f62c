// The smallest plan whose modules share a device, for commands that train it.
#pragma once

#include "core/plan.hpp"

namespace dflop::testing {

/// Returns a plan of tiny-vlm with one encoder rank, which has `share` of the device, and one LLM rank.
inline Plan shared_plan_of_one_device(double share) {
  Plan plan;
  plan.planner = "test";
  plan.model = "tiny-vlm";
  plan.cluster = "a100-80g:1";
  plan.gbs = 4;
  plan.layout = Layout::shared;
  plan.encoder_share = share;
  plan.encoder = {1, 1, 1, {2}};
  plan.llm = {1, 1, 1, {2}};
  plan.microbatches = 2;
  plan.recomputation = Recomputation::none;
  return plan;
}

}  // namespace dflop::testing
