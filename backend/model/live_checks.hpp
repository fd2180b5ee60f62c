// These checks find models and batches that cannot be computed live, before anything is made of them.
#pragma once

#include <span>

#include "core/model.hpp"
#include "core/sample.hpp"

namespace dflop {

/// Checks a model. @throws Error (input) naming what of the model cannot be computed, as a connector that is
/// missing or of other widths than encoder and LLM, or heads that cannot be turned in pairs.
void require_live(const ModelSpec& model);

/// Checks that tp can split encoder and LLM. @throws Error (input) as stage_parameter_list()
void require_split(const ModelSpec& model, int encoder_tp, int llm_tp);

/// Checks a batch. @throws Error (input) naming a sample that asks for tokens from the encoder and has none
/// to give.
void require_live(const ModelSpec& model, std::span<const Sample> samples);

}  // namespace dflop
