// This file reads descriptions of pipelines that need no model.
#pragma once

#include <string>
#include <string_view>

#include "core/program/raw_pipeline.hpp"

namespace dflop {

/// Reads a pipeline (schema "dflop.pipeline", version 1) and validates it. The key `stages` is the number of
/// pipeline ranks. `chunks` is the number of model stages on each rank; it is required for interleaved, and 2
/// for zb-v, which may omit it. Each of forward_s, backward_s, backward_weight_s, activation_bytes and
/// p2p_bytes is a number or an array. The array has one row for each of the stages x chunks model stages
/// (p2p_bytes: for each boundary between two model stages). A row is a number, or an array with one number
/// for each microbatch. encoder_forward_s, encoder_backward_s and encoder_bytes are a number or an array with
/// one number for each microbatch; activation_limit is a number or an array with one for each of the
/// `stages`.
/// @throws Error (input) naming the key.
RawPipeline parse_pipeline(std::string_view json, const std::string& file);

}  // namespace dflop
