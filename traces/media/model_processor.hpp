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
    std::variant<std::monostate, ClipProcessor, LlavaProcessor, QwenProcessor, InternvlProcessor, MelOptions>;

/// Returns the settings in `json`, the text of a preprocessor_config.json. If `json` is nullopt, returns the
/// family's usual settings with the sizes from the model's config.json. Returns an empty ModelProcessor for a
/// model without an architecture.
/// @throws Error (input) if the sizes in `json` do not match the model's; what the processors' parsers throw
ModelProcessor model_processor(const ModelSpec& model, const std::optional<std::string>& json,
                               const std::string& file);
/// Returns the settings for sounds of a model that also has a processor for pictures; nullopt for others.
/// @throws what model_processor() throws
std::optional<MelOptions> second_processor(const ModelSpec& model, const std::optional<std::string>& json,
                                           const std::string& file);
/// Reads second_processor()'s settings from a folder. @throws what second_processor() throws
std::optional<MelOptions> read_second_processor(const ModelSpec& model, const std::string& folder);
/// Reads the settings from a folder as transformers does: from the image_processor or feature_extractor in
/// its processor_config.json (written by transformers 5), else from its preprocessor_config.json. If the
/// folder has neither, returns the family's usual settings. For Qwen3-VL, it also reads the video_processor
/// in processor_config.json, else video_preprocessor_config.json.
/// @throws what model_processor() throws
ModelProcessor read_model_processor(const ModelSpec& model, const std::string& folder);

}  // namespace dflop
