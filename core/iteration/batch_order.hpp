// This header finds the order in which a plan runs one batch, where that depends on durations and memory.
#pragma once

#include <span>

#include "core/cost_model.hpp"
#include "core/program/lowering.hpp"

namespace dflop {

/// Fills the tables of a plan's order from any lowered program of the plan and batch, and its costs.
///
/// Times are means over dp ranks (and over the messages of a boundary and microbatch). Limits are the
/// microbatches for which each pipeline rank has memory beside its model state and the largest workspace,
/// counted in its largest activations; at least one, as a rank that cannot hold one microbatch cannot run,
/// which the simulated peak shows. Under encoder_in_bubbles the LLM's microbatches come first, at most pp -
/// rank of them, and the encoder's get the rest.
OrderTables order_tables(const Plan& plan, const Program& program, const ProgramCosts& costs,
                         Bytes usable_memory);

/// Returns the order in which planners, simulations and live runs run a plan on this batch: plan_order() with
/// the tables of a cost model and of a GPU's usable memory where the order reads them. What single samples
/// add to their microbatch (CostModel::sample_excess()) does not move it. The same arguments give the same
/// order. The plan must be valid. @throws Error (input) as lower().
PipelineOrder order_for_batch(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                              std::span<const Sample> batch, const Assignment& assignment,
                              Bytes usable_memory);

}  // namespace dflop
