// A model's folder says how pictures and sounds are cut for its encoder.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "core/model.hpp"
#include "traces/media/processors.hpp"
#include "traces/media/sound.hpp"

namespace dflop {

/// A ModelProcessor has the settings of a model's processor; none where the model takes words alone.
using ModelProcessor =
    std::variant<std::monostate, LlavaProcessor, QwenProcessor, InternvlProcessor, MelOptions>;

/// Returns what the text of a preprocessor_config.json says or, where there is none, the family's usual
/// settings with the sizes of the model's own config.json. A model without an architecture has none.
/// @throws Error (input) as the processors' parsers, and where the file's sizes are not the model's
ModelProcessor model_processor(const ModelSpec& model, const std::optional<std::string>& json,
                               const std::string& file);
/// Reads what transformers would of a folder: the image_processor or feature_extractor that its
/// processor_config.json has (as transformers 5 writes it), or else its preprocessor_config.json, if there is
/// one. @throws as model_processor()
ModelProcessor read_model_processor(const ModelSpec& model, const std::string& folder);

}  // namespace dflop
