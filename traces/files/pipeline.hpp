// This file reads descriptions of pipelines that need no model.
#pragma once

#include <string>
#include <string_view>

#include "core/program/raw_pipeline.hpp"

namespace dflop {

/// Reads a pipeline (schema "dflop.pipeline", version 1) and validates it. `stages` is the number of pipeline
/// ranks, and `chunks` the number of the model's stages that each rank holds (required for interleaved;
/// optional for zb-v, where it is always 2). The keys forward_s, backward_s, backward_weight_s,
/// activation_bytes and p2p_bytes are each a number, or an array with one row for each of the stages x chunks
/// stages of the model (p2p_bytes: for each boundary between two of them), where a row is a number or an
/// array with one number for each microbatch. encoder_forward_s, encoder_backward_s and encoder_bytes are a
/// number or an array with one number for each microbatch; activation_limit is a number or an array with one
/// number for each pipeline rank.
/// @throws Error (input) naming the key.
RawPipeline parse_pipeline(std::string_view json, const std::string& file);

}  // namespace dflop
