// This file reads descriptions of pipelines that need no model.
#pragma once

#include <string>
#include <string_view>

#include "core/program/raw_pipeline.hpp"

namespace dflop {

/// Reads a pipeline (schema "dflop.pipeline", version 1) and validates it. `stages` are pipeline ranks,
/// `chunks` the stages of the model that each holds (required for interleaved; 2, and so optional, for zb-v).
/// The keys forward_s, backward_s, backward_weight_s, activation_bytes and p2p_bytes are each a number, or an
/// array with one row for each of the stages x chunks stages of the model (p2p_bytes: for each boundary
/// between two of them), where a row is a number or an array with one number for each microbatch.
/// encoder_forward_s, encoder_backward_s and encoder_bytes are a number or an array with one number for each
/// microbatch; activation_limit is a number or an array with one for each of the `stages`.
/// @throws Error (input) naming the key.
RawPipeline parse_pipeline(std::string_view json, const std::string& file);

}  // namespace dflop
