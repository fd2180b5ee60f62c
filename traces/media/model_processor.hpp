// This file reads from a model's folder how the model cuts pictures and sounds for its encoder.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "core/model.hpp"
#include "traces/media/processors.hpp"
#include "traces/media/sound.hpp"

namespace dflop {

/// A ModelProcessor holds the settings of a model's processor; it is empty if the model takes only text.
using ModelProcessor =
    std::variant<std::monostate, LlavaProcessor, QwenProcessor, InternvlProcessor, MelOptions>;

/// Returns the settings in a preprocessor_config.json or, without that text, the family's usual settings with
/// the sizes from the model's own config.json. The result is empty for a model without an architecture.
/// @throws what the processors' parsers throw, and Error (input) if the file's sizes do not match the model's
/// sizes
ModelProcessor model_processor(const ModelSpec& model, const std::optional<std::string>& json,
                               const std::string& file);
/// Reads a folder as transformers does: the image_processor or feature_extractor in its processor_config.json
/// (written by transformers 5), or else its preprocessor_config.json, if any. @throws what model_processor()
/// throws
ModelProcessor read_model_processor(const ModelSpec& model, const std::string& folder);

}  // namespace dflop
