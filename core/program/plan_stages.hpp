// The stages of a plan and who runs them.
#pragma once

#include <cstdint>
#include <vector>

#include "core/order/schedules.hpp"
#include "core/program.hpp"

namespace dflop {

/// The stages of a plan in model order, encoder first. The plan must be valid; a uniform one may be of a
/// model without encoder layers.
std::vector<Stage> plan_stages(const Plan& plan, const ModelSpec& model);

/// Parameters of a stage on one of its ranks.
std::int64_t stage_parameters(const Stage& stage, const ModelSpec& model);

/// The pipeline of a plan, whose stages are those of plan_stages().
PipelineShape plan_shape(const Plan& plan);

/// The order of a plan's schedule. The plan must be valid.
PipelineOrder plan_order(const Plan& plan, const ScheduleTables& tables = {});

}  // namespace dflop
