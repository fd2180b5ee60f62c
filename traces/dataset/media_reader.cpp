#include "traces/dataset/media_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/refuse.hpp"

namespace dflop {
namespace {

/// A Picture is decoded, or only its size is known.
struct Picture {
  ImageSize size;
  std::optional<RgbImage> image;
};

Picture picture_of(const MediumFile& file, bool values) {
  if (!values) return {image_size(file.bytes, file.name), std::nullopt};
  RgbImage image = decode_image(file.bytes, file.name);
  return {image.size, std::move(image)};
}

MediumContent content_of(const Architecture& architecture, const ClipProcessor& processor,
                         const MediumFile& file, bool values) {
  const Picture picture = picture_of(file, values);
  require_clip_size(picture.size, processor);
  if (!values) return clip_picture(architecture, {});
  return clip_picture(architecture, clip_tile(*picture.image, processor).pixels);
}

MediumContent content_of(const Architecture& architecture, const LlavaProcessor& processor,
                         const MediumFile& file, bool values) {
  const Picture picture = picture_of(file, values);
  const bool in_grid = file.is_alone || processor.tiles_several;
  if (!values) {
    if (!in_grid) require_llava_square(picture.size);
    const std::int64_t tiles = in_grid ? llava_tile_count(picture.size, processor) : 1;
    return llava_picture(architecture, tiles, {}, picture.size, in_grid);
  }
  const Tiles tiles =
      in_grid ? llava_tiles(*picture.image, processor) : llava_tile_of_several(*picture.image, processor);
  return llava_picture(architecture, tiles.count, tiles.pixels, picture.size, in_grid);
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

MediumContent content_of(const ModelSpec& model, const MelOptions& options, const MediumFile& file,
                         bool values) {
  const SoundShape shape = sound_shape(file.bytes, file.name);
  const std::int64_t samples = resampled_length(shape.samples, shape.rate);
  // Two rows of the second convolution make a token; the first two rows begin at frames 0 and 2.
  constexpr std::int64_t kMin = 2 * kMelHop + 1;
  std::int64_t longest = options.chunk;
  if (model.architecture->sound.part == 0) longest = std::min(longest, 2 * model.front().table * kMelHop);
  if (samples < kMin || samples > longest) {
    throw UntakenLength{fmt::format("{}: expected a sound of {} to {} samples, which are {:.3g} s, found {}",
                                    file.name, kMin, longest, static_cast<double>(longest) / kSoundRate,
                                    samples)};
  }
  const MelSpectrum mel =
      values ? log_mel(decode_sound(file.bytes, file.name), options) : mel_shape(samples, options);
  return qwen_sound(model, mel.frames, mel.valid_frames, mel.values);
}

MediumContent content_of(const ModelSpec&, std::monostate, const MediumFile& file, bool) {
  refuse_input(file.name, "the model takes only text, found a picture or sound");
}

/// Pictures need only the architecture.
template <typename Processor>
MediumContent content_of(const ModelSpec& model, const Processor& processor, const MediumFile& file,
                         bool values) {
  return content_of(*model.architecture, processor, file, values);
}

}  // namespace

MediaReader::MediaReader(const ModelSpec& model, const std::string& folder)
    : model_(model),
      processor_(read_model_processor(model, folder)),
      second_(read_second_processor(model, folder)) {
  if (!model_.architecture) model_.architecture.emplace();
}

/// A model that sees and hears takes every file that does not begin as a picture as a sound.
bool MediaReader::is_sound(const MediumFile& file) const {
  if (second_) return !begins_as_picture(file.bytes);
  return std::holds_alternative<MelOptions>(processor_);
}

MediumContent MediaReader::make(const MediumFile& file, bool values) const {
  try {
    if (second_ && is_sound(file)) return content_of(model_, *second_, file, values);
    return std::visit([&](const auto& processor) { return content_of(model_, processor, file, values); },
                      processor_);
  } catch (const Error& error) {
    if (!error.context().empty()) throw;
    throw Error(error.kind(), error.message(), file.name);  // the picture's size is not supported
  }
}

MediumContent MediaReader::read(const MediumFile& file) const {
  return make(file, true);
}

MediumContent MediaReader::shape(const MediumFile& file) const {
  return make(file, false);
}

void MediaReader::check(const MediumFile& file) const {
  if (is_sound(file)) {
    decode_sound(file.bytes, file.name);
  } else {
    decode_image(file.bytes, file.name);
  }
}

}  // namespace dflop
