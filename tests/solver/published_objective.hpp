// The objective of the published parallelism optimizer, as ExpectedPlanner minimizes it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/program/lowering.hpp"
#include "solver/planners/expected/module_durations.hpp"

namespace dflop::testing {

/// Returns the mean over `items` of T(d) = (N_mb + E_pp + L_pp - 1) * max(E_dur(d), L_dur(d)) for a
/// disaggregated plan. E_dur(d) is the forward and backward time on the slowest encoder stage of a microbatch
/// filled with copies of d, which is share_of_batch(d, gbs, N_mb * E_dp). L_dur(d) is the same for the LLM
/// with N_mb * L_dp (DFLOP, section on the data-aware 3D parallelism optimizer).
inline Seconds published_objective(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                                   std::span<const Sample> items) {
  const std::vector<Stage> stages = plan_stages(plan, model);
  const auto encoder = std::span(stages).first(plan.encoder.pp);
  const auto llm = std::span(stages).subspan(plan.encoder.pp);
  const std::int64_t encoder_shares = std::int64_t{plan.microbatches} * plan.encoder.dp;
  const std::int64_t llm_shares = std::int64_t{plan.microbatches} * plan.llm.dp;
  Seconds sum{0};
  for (const Sample& item : items) {
    const Work encoder_work{share_of_batch(item.encoder(), plan.gbs, encoder_shares), {}};
    const Work llm_work{{}, share_of_batch(item.llm(), plan.gbs, llm_shares)};
    sum += std::max(slowest_stage(cost, encoder, encoder_work), slowest_stage(cost, llm, llm_work));
  }
  const int steps = plan.microbatches + plan.encoder.pp + plan.llm.pp - 1;
  return sum * (static_cast<double>(steps) / static_cast<double>(items.size()));
}

}  // namespace dflop::testing
