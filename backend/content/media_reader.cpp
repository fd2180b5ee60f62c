#include "backend/content/media_reader.hpp"

#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "core/refuse.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

/// A Picture is decoded, or its size alone is known.
struct Picture {
  ImageSize size;
  std::optional<RgbImage> image;
};

Picture picture_of(const MediumFile& file, bool values) {
  if (!values) return {image_size(file.bytes, file.name), std::nullopt};
  RgbImage image = decode_image(file.bytes, file.name);
  return {image.size, std::move(image)};
}

MediumContent content_of(const Architecture& architecture, const LlavaProcessor& processor,
                         const MediumFile& file, bool values) {
  const Picture picture = picture_of(file, values);
  if (!values) {
    const std::int64_t tiles = file.is_alone ? llava_tile_count(picture.size, processor) : 1;
    return llava_picture(architecture, tiles, {}, picture.size, file.is_alone);
  }
  const Tiles tiles = file.is_alone ? llava_tiles(*picture.image, processor)
                                    : llava_tile_of_several(*picture.image, processor);
  return llava_picture(architecture, tiles.count, tiles.pixels, picture.size, file.is_alone);
}

MediumContent content_of(const Architecture& architecture, const InternvlProcessor& processor,
                         const MediumFile& file, bool values) {
  const Picture picture = picture_of(file, values);
  if (!values) return internvl_picture(architecture, internvl_tile_count(picture.size, processor), {});
  const Tiles tiles = internvl_tiles(*picture.image, processor);
  return internvl_picture(architecture, tiles.count, tiles.pixels);
}

MediumContent content_of(const Architecture& architecture, const QwenProcessor& processor,
                         const MediumFile& file, bool values) {
  const Picture picture = picture_of(file, values);
  Patches patches{qwen_grid(picture.size, processor), {}};
  if (values) patches = qwen_patches({&*picture.image, 1}, processor);
  const PatchGrid grid{patches.grid.frames, patches.grid.rows, patches.grid.columns};
  return qwen_picture(architecture, grid, patches.rows, std::nullopt);
}

MediumContent content_of(const Architecture& architecture, const MelOptions& options, const MediumFile& file,
                         bool values) {
  MelSpectrum mel;
  if (values) {
    mel = log_mel(decode_sound(file.bytes, file.name), options);
  } else {
    const SoundShape shape = sound_shape(file.bytes, file.name);
    mel = mel_shape(shape.samples, options);
  }
  return qwen_sound(architecture, mel.frames, mel.valid_frames, mel.values);
}

MediumContent content_of(const Architecture&, std::monostate, const MediumFile& file, bool) {
  refuse_input(file.name, "the model takes words alone, found a picture or sound");
}

void require_side(const std::string& file, const char* what, std::int64_t expected, std::int64_t found) {
  if (found == expected) return;
  refuse_input(file, "expected {} {}, as config.json says, found {}", what, expected, found);
}

std::vector<ImageSize> pinpoints_of(const PictureGeometry& picture) {
  std::vector<ImageSize> pinpoints;
  for (const auto& [height, width] : picture.pinpoints) pinpoints.push_back({width, height});
  return pinpoints;
}

LlavaProcessor llava_processor(const PictureGeometry& picture, const std::optional<std::string>& json,
                               const std::string& file) {
  LlavaProcessor processor;
  processor.tile = picture.tile;
  processor.pinpoints = pinpoints_of(picture);
  if (!json) return processor;
  processor = parse_llava_processor(*json, file);
  require_side(file, "tiles with sides of", picture.tile, processor.tile);
  if (processor.pinpoints != pinpoints_of(picture)) {
    refuse_input(file, "key 'image_grid_pinpoints': expected those of config.json, found others");
  }
  return processor;
}

QwenProcessor qwen_processor(const PictureGeometry& picture, const std::optional<std::string>& json,
                             const std::string& file) {
  QwenProcessor processor;
  processor.patch = picture.patch;
  processor.merge = picture.merge;
  processor.temporal_patch = picture.temporal_patch;
  if (!json) return processor;
  processor = parse_qwen_processor(*json, file);
  require_side(file, "patches with sides of", picture.patch, processor.patch);
  require_side(file, "squares that are merged with sides of", picture.merge, processor.merge);
  require_side(file, "frames of a patch", picture.temporal_patch, processor.temporal_patch);
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

}  // namespace

MediaReader::MediaReader(const ModelSpec& model, const std::string& folder)
    : architecture_(model.architecture.value_or(Architecture{})) {
  const std::string file = folder + "/preprocessor_config.json";
  std::optional<std::string> json;
  if (std::filesystem::exists(file)) json = read_text_file(file);
  const PictureGeometry& picture = architecture_.picture;
  switch (architecture_.family) {
    case ModelFamily::qwen2:
    case ModelFamily::llama:
      return;
    case ModelFamily::llava_onevision:
      processor_ = llava_processor(picture, json, file);
      return;
    case ModelFamily::qwen2_5_vl:
      processor_ = qwen_processor(picture, json, file);
      return;
    case ModelFamily::internvl:
      processor_ = internvl_processor(picture, json, file);
      return;
    case ModelFamily::qwen2_audio:
      processor_ = MelOptions{.bins = architecture_.front.values};
      return;
  }
}

MediumContent MediaReader::make(const MediumFile& file, bool values) const {
  return std::visit([&](const auto& processor) { return content_of(architecture_, processor, file, values); },
                    processor_);
}

MediumContent MediaReader::read(const MediumFile& file) const {
  return make(file, true);
}

MediumContent MediaReader::shape(const MediumFile& file) const {
  return make(file, false);
}

}  // namespace dflop
