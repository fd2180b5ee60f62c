// This is the objective of the published parallelism optimizer.
#pragma once

#include <cstdint>
#include <span>

#include "core/cost_model.hpp"
#include "core/plan.hpp"

namespace dflop {

/// Returns a module's share of a global batch of copies of one sample, gbs / shares of them: whole sequences,
/// tokens and attention pairs, rounded half up, at least one of each that the sample has.
Workload share_of_batch(const Workload& sample, int gbs, std::int64_t shares);

/// Returns the time of forward and backward of one workload on the slowest of a module's stages.
Seconds slowest_stage(const CostModel& cost, std::span<const Stage> stages, const Work& work);

/// Returns the slowest stage by CostModel::convex_floor(), which the cost model must have.
Seconds slowest_stage_floor(const CostModel& cost, std::span<const Stage> stages, const Work& work);

/// Returns the mean over `items` of T(d) = (N_mb + E_pp + L_pp - 1) * max(E_dur(d), L_dur(d)) for a
/// disaggregated plan, where E_dur(d) is the forward and backward time on the slowest encoder stage of a
/// microbatch filled with copies of d, that is of share_of_batch(d, gbs, N_mb * E_dp), and L_dur(d) the same
/// for the LLM with N_mb * L_dp (DFLOP, section on the data-aware 3D parallelism optimizer).
Seconds published_objective(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                            std::span<const Sample> items);

}  // namespace dflop
