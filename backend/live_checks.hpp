// Models and batches that cannot be computed live.
#pragma once

#include <span>

#include "core/model.hpp"
#include "core/sample.hpp"

namespace dflop {

/// @throws Error (input) naming what of the model cannot be computed, as a connector that is missing or of
/// other widths than encoder and LLM, or heads that cannot be turned in pairs. What tp cannot split is found
/// by stage_parameter_list().
void require_live(const ModelSpec& model);

/// @throws Error (input) naming a sample that asks for tokens from the encoder and has none to give.
void require_live(const ModelSpec& model, std::span<const Sample> samples);

}  // namespace dflop
