#include "traces/media/model_processor.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

#include "core/refuse.hpp"
#include "traces/text/strict_json.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

void require_side(const std::string& file, const char* what, std::int64_t expected, std::int64_t found) {
  if (found == expected) return;
  refuse_input(file, "expected {} {}, as config.json says, found {}", what, expected, found);
}

std::vector<ImageSize> pinpoints_of(const PictureGeometry& picture) {
  std::vector<ImageSize> pinpoints;
  for (const auto& [height, width] : picture.pinpoints) pinpoints.push_back({width, height});
  return pinpoints;
}

ClipProcessor clip_processor(const PictureGeometry& picture, const std::optional<std::string>& json,
                             const std::string& file) {
  ClipProcessor processor;
  processor.tile = picture.tile;
  if (!json) return processor;
  processor = parse_clip_processor(*json, file);
  require_side(file, "tiles with sides of", picture.tile, processor.tile);
  return processor;
}

LlavaProcessor llava_processor(const PictureGeometry& picture, bool is_next,
                               const std::optional<std::string>& json, const std::string& file) {
  LlavaProcessor processor;
  processor.tile = picture.tile;
  processor.pinpoints = pinpoints_of(picture);
  processor.tiles_several = is_next;
  if (!json) return processor;
  processor = is_next ? parse_llava_next_processor(*json, file) : parse_llava_processor(*json, file);
  require_side(file, "tiles with sides of", picture.tile, processor.tile);
  if (processor.pinpoints != pinpoints_of(picture)) {
    refuse_input(file,
                 "key 'image_grid_pinpoints': expected the same value as in config.json, found another");
  }
  return processor;
}

/// Without a file, Qwen3-VL has the settings of its released models.
QwenProcessor qwen_processor(const ModelSpec& model, const std::optional<std::string>& json,
                             const std::string& file) {
  const PictureGeometry& picture = model.architecture->picture;
  QwenProcessor processor;
  if (model.architecture->family == ModelFamily::qwen3_vl) {
    processor.min_pixels = 256 * 256;
    processor.max_pixels = 4096 * 4096;
    processor.scale.mean = processor.scale.deviation = {0.5, 0.5, 0.5};
    processor.video.emplace();
  }
  processor.patch = picture.patch;
  processor.merge = picture.merge;
  processor.temporal_patch = picture.temporal_patch;
  if (processor.video) {
    processor.video->token_side = static_cast<double>(picture.patch * picture.merge);
    processor.video->frames_per_slot = picture.temporal_patch;
  }
  if (!json) return processor;
  const std::optional<Qwen3VideoRule> video = processor.video;
  processor = parse_qwen_processor(*json, file);
  processor.video = video;
  require_side(file, "patches with sides of", picture.patch, processor.patch);
  require_side(file, "merged squares with sides of", picture.merge, processor.merge);
  require_side(file, "a number of frames per patch of", picture.temporal_patch, processor.temporal_patch);
  return processor;
}

InternvlProcessor internvl_processor(const PictureGeometry& picture, const std::optional<std::string>& json,
                                     const std::string& file) {
  InternvlProcessor processor;
  processor.tile = picture.tile;
  if (!json) return processor;
  processor = parse_internvl_processor(*json, file);
  require_side(file, "tiles with sides of", picture.tile, processor.tile);
  return processor;
}

MelOptions sound_processor(const MelOptions& usual, const std::optional<std::string>& json,
                           const std::string& file) {
  if (!json) return usual;
  const MelOptions options = parse_sound_processor(*json, file, usual);
  require_side(file, "a number of mel bins per frame of", usual.bins, options.bins);
  return options;
}

}  // namespace

ModelProcessor model_processor(const ModelSpec& model, const std::optional<std::string>& json,
                               const std::string& file) {
  if (!model.architecture) return {};
  const PictureGeometry& picture = model.architecture->picture;
  const ModelFamily family = model.architecture->family;
  switch (family) {
    case ModelFamily::qwen2:
    case ModelFamily::qwen3:
    case ModelFamily::llama:
      return {};
    case ModelFamily::llava:
      return clip_processor(picture, json, file);
    case ModelFamily::llava_next:
    case ModelFamily::llava_onevision:
      return llava_processor(picture, family == ModelFamily::llava_next, json, file);
    case ModelFamily::qwen2_vl:
    case ModelFamily::qwen2_5_vl:
    case ModelFamily::qwen3_vl:
    case ModelFamily::qwen2_5_omni:
      return qwen_processor(model, json, file);
    case ModelFamily::internvl:
      return internvl_processor(picture, json, file);
    case ModelFamily::qwen2_audio:
      return sound_processor({.bins = model.architecture->front.values}, json, file);
  }
  return {};
}

std::optional<MelOptions> second_processor(const ModelSpec& model, const std::optional<std::string>& json,
                                           const std::string& file) {
  if (!model.second || model.second->front.kind != FrontKind::sound) return std::nullopt;
  // Only frames of the sound reach the encoder (transformers processing_qwen2_5_omni.py).
  constexpr std::int64_t kLongest = 300 * kSoundRate;
  const MelOptions usual{.bins = model.second->front.values, .chunk = kLongest, .keeps_padding = false};
  return sound_processor(usual, json, file);
}

namespace {

/// Reads a JSON file's part, such as "image_processor" in the processor_config.json of transformers 5, with
/// its name for errors; nullopt if there is no file or no such part.
std::optional<std::pair<std::string, std::string>> read_part(const std::string& file, std::string_view part) {
  const std::optional<std::string> json = read_file_if_there(file);
  if (!json) return std::nullopt;
  const JsonDocument document(*json, file);
  const JsonValue root = document.root();
  root.require_object();
  if (!root.has(part) || root.at(part).text() == "null") return std::nullopt;
  return std::pair{root.at(part).text(), fmt::format("{}, {}", file, part)};
}

/// Calls make(json, file) with the settings of a folder: those under `part` in its processor_config.json, or
/// its preprocessor_config.json, which may be absent.
template <typename Make>
auto read_settings(const std::string& folder, std::string_view part, const Make& make) {
  if (const auto found = read_part(folder + "/processor_config.json", part))
    return make(found->first, found->second);
  const std::string file = folder + "/preprocessor_config.json";
  return make(read_file_if_there(file), file);
}

/// Reads the processor of pictures or sounds. @see read_model_processor()
ModelProcessor read_main_processor(const ModelSpec& model, const std::string& folder) {
  const bool hears = model.architecture && model.front().kind == FrontKind::sound;
  return read_settings(folder, hears ? "feature_extractor" : "image_processor",
                       [&](const std::optional<std::string>& json, const std::string& file) {
                         return model_processor(model, json, file);
                       });
}

}  // namespace

std::optional<MelOptions> read_second_processor(const ModelSpec& model, const std::string& folder) {
  return read_settings(folder, "feature_extractor",
                       [&](const std::optional<std::string>& json, const std::string& file) {
                         return second_processor(model, json, file);
                       });
}

ModelProcessor read_model_processor(const ModelSpec& model, const std::string& folder) {
  ModelProcessor processor = read_main_processor(model, folder);
  auto* qwen = std::get_if<QwenProcessor>(&processor);
  if (qwen == nullptr || !qwen->video) return processor;
  if (const auto part = read_part(folder + "/processor_config.json", "video_processor")) {
    qwen->video = parse_qwen3_video_rule(part->first, part->second, *qwen);
    return processor;
  }
  const std::string file = folder + "/video_preprocessor_config.json";
  if (const auto json = read_file_if_there(file)) qwen->video = parse_qwen3_video_rule(*json, file, *qwen);
  return processor;
}

}  // namespace dflop
