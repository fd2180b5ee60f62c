// Models and batches that cannot be computed live.
#pragma once

#include <span>

#include "core/model.hpp"
#include "core/sample.hpp"

namespace dflop {

/// @throws Error (input) naming what of the model cannot be computed, as a connector that is missing or of
/// other widths than encoder and LLM, or heads that cannot be turned in pairs.
void require_live(const ModelSpec& model);

/// Before any parameter is made. @throws Error (input) for what tp cannot split, as stage_parameter_list()
void require_split(const ModelSpec& model, int encoder_tp, int llm_tp);

/// @throws Error (input) naming a sample that asks for tokens from the encoder and has none to give.
void require_live(const ModelSpec& model, std::span<const Sample> samples);

}  // namespace dflop
