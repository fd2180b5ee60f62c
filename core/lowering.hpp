// lower(): Plan + Assignment -> Program.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/program.hpp"

namespace dflop {

/// The stages of a plan, encoder first. The plan must be valid.
std::vector<Stage> plan_stages(const Plan& plan, const ModelSpec& model);

/// Parameters of a stage on one of its ranks.
std::int64_t stage_parameters(const Stage& stage, const ModelSpec& model);

/// Lowers a valid plan and assignment of one batch to a Program.
///
/// Microbatch j of a disaggregated plan: the samples that all LLM dp ranks have in j are cut into encoder
/// sequences and shared over the encoder's dp ranks in sample order, each rank getting a contiguous piece of
/// equal FLOP to within one sequence. Encoder outputs go from the rank that made them to the LLM dp rank
/// whose sample needs them, and gradients go back the same way. A uniform plan encodes a sample where its LLM
/// dp rank is. Messages without bytes are left out. After the last backward each stage reduces its gradients
/// over dp (fp32, 4 bytes a parameter) and takes an optimizer step.
/// @throws Error (input) if the assignment does not fit the plan and batch, or the batch has over 10^11
/// tokens.
Program lower(const Plan& plan, const ModelSpec& model, std::span<const Sample> batch,
              const Assignment& assignment);

}  // namespace dflop
