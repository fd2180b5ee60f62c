#include "traces/dataset/media_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/refuse.hpp"
#include "traces/media/resize.hpp"
#include "traces/media/video_frames.hpp"

namespace dflop {
namespace {

/// A Picture is decoded, or only its size is known.
struct Picture {
  ImageSize size;
  std::optional<RgbImage> image;
};

Picture picture_of(const MediumFile& file, bool values, ExifRule exif) {
  if (!values) return {image_size(file.bytes, file.name, kMaxPixels, exif), std::nullopt};
  RgbImage image = decode_image(file.bytes, file.name, kMaxPixels, exif);
  return {image.size, std::move(image)};
}

MediumContent content_of(const Architecture& architecture, const ClipProcessor& processor,
                         const MediumFile& file, bool values, ExifRule exif) {
  const Picture picture = picture_of(file, values, exif);
  require_clip_size(picture.size, processor);
  if (!values) return clip_picture(architecture, {});
  return clip_picture(architecture, clip_tile(*picture.image, processor).pixels);
}

MediumContent content_of(const Architecture& architecture, const LlavaProcessor& processor,
                         const MediumFile& file, bool values, ExifRule exif) {
  const Picture picture = picture_of(file, values, exif);
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
                         const MediumFile& file, bool values, ExifRule exif) {
  const Picture picture = picture_of(file, values, exif);
  if (!values) return internvl_picture(architecture, internvl_tile_count(picture.size, processor), {});
  const Tiles tiles = internvl_tiles(*picture.image, processor);
  return internvl_picture(architecture, tiles.count, tiles.pixels);
}

MediumContent content_of(const Architecture& architecture, const QwenProcessor& processor,
                         const MediumFile& file, bool values, ExifRule exif) {
  const Picture picture = picture_of(file, values, exif);
  Patches patches{qwen_grid(picture.size, processor), {}};
  if (values) patches = qwen_patches({&*picture.image, 1}, processor);
  const PatchGrid grid{patches.grid.frames, patches.grid.rows, patches.grid.columns};
  return qwen_picture(architecture, grid, patches.rows, std::nullopt);
}

MediumContent content_of(const ModelSpec& model, const MelOptions& options, const MediumFile& file,
                         bool values, ExifRule) {
  const SoundShape shape = sound_shape(file.bytes, file.name);
  const std::int64_t samples = resampled_length(shape.samples, shape.rate);
  // Two rows of the second convolution make a token; the first two rows begin at frames 0 and 2.
  constexpr std::int64_t kMin = 2 * kMelHop + 1;
  std::int64_t longest = options.chunk;
  if (model.architecture->sound.part == 0) longest = std::min(longest, 2 * model.front().table * kMelHop);
  if (samples < kMin || samples > longest) {
    const auto seconds = [](std::int64_t count) { return static_cast<double>(count) / kSoundRate; };
    throw UntakenLength{
        fmt::format("{}: the model takes sounds of {:.3g} s to {:.4g} s, this one lasts {:.6g} s", file.name,
                    seconds(kMin), seconds(longest), seconds(samples))};
  }
  const MelSpectrum mel =
      values ? log_mel(decode_sound(file.bytes, file.name), options) : mel_shape(samples, options);
  return qwen_sound(model, mel.frames, mel.valid_frames, mel.values);
}

MediumContent content_of(const ModelSpec&, std::monostate, const MediumFile& file, bool, ExifRule) {
  refuse_input(file.name, "the model takes only text, found a picture or sound");
}

/// Pictures need only the architecture.
template <typename Processor>
MediumContent content_of(const ModelSpec& model, const Processor& processor, const MediumFile& file,
                         bool values, ExifRule exif) {
  return content_of(*model.architecture, processor, file, values, exif);
}

/// Returns the frames that a model takes. @throws Error (input) for a model that takes no videos
template <typename Processor>
FrameChoice frames_of(const Architecture& architecture, const Processor&, const VideoSource& video) {
  refuse_input(video.name(), "{} takes no videos, or dflop does not know how: expected pictures or sounds",
               to_string(architecture.family));
}

/// Models draw a random number of frames in training and name each in the text, in ways that differ between
/// trainers, so there is no one right form.
template <>
FrameChoice frames_of(const Architecture&, const InternvlProcessor&, const VideoSource& video) {
  refuse_input(video.name(),
               "videos of InternVL are not supported, because its trainers draw their frames at random: "
               "expected the frames as pictures, with a text such as 'Frame1: <image>' for each");
}

template <>
FrameChoice frames_of(const Architecture& architecture, const LlavaProcessor& processor,
                      const VideoSource& video) {
  if (processor.tiles_several) return frames_of(architecture, std::monostate{}, video);
  return llava_video_frames(video.shape(), processor);
}

template <>
FrameChoice frames_of(const Architecture&, const QwenProcessor& processor, const VideoSource& video) {
  return qwen_video_frames(video.shape(), processor);
}

template <typename Processor>
std::vector<MediumPart> parts_of(const Architecture& architecture, const Processor& processor,
                                 const VideoSource& video, bool) {
  frames_of(architecture, processor, video);
  throw Error(ErrorKind::internal, "the family has frames, but no form for them", video.name());
}

template <>
std::vector<MediumPart> parts_of(const Architecture& architecture, const LlavaProcessor& processor,
                                 const VideoSource& video, bool values) {
  const FrameChoice choice = frames_of(architecture, processor, video);
  video.check_sizes(choice.frames);
  std::vector<float> pixels;
  if (values) {
    video.read(choice.frames, [&](const RgbImage& frame) {
      const Tiles tile = llava_frame_tile(frame, processor);
      pixels.insert(pixels.end(), tile.pixels.begin(), tile.pixels.end());
    });
  }
  return {{"", llava_video(architecture, std::ssize(choice.frames), pixels)}};
}

/// Returns a Qwen3-VL video: each slot is like a picture, after the mean time of its first and last frame
/// (transformers processing_qwen3_vl.py). The marks of the chat template stay around the whole video, as in
/// transformers 5.10 and later; previous versions dropped them.
std::vector<MediumPart> timed_slots(const Architecture& architecture, const FrameChoice& choice, double fps,
                                    const Patches& patches) {
  const QwenGrid& grid = patches.grid;
  const auto per_slot = static_cast<std::size_t>(architecture.picture.temporal_patch);
  const std::size_t values = patches.rows.size() / static_cast<std::size_t>(grid.frames);
  std::vector<MediumPart> parts;
  for (std::size_t slot = 0; slot < static_cast<std::size_t>(grid.frames); ++slot) {
    const std::size_t first = slot * per_slot;
    const std::size_t last = std::min(first + per_slot, choice.frames.size()) - 1;
    const double time =
        (static_cast<double>(choice.frames[first]) / fps + static_cast<double>(choice.frames[last]) / fps) /
        2;
    parts.push_back({fmt::format("<{:.1f} seconds>", time),
                     qwen_picture(architecture, {1, grid.rows, grid.columns},
                                  std::span(patches.rows).subspan(slot * values, values), std::nullopt)});
  }
  parts.front().words.insert(0, "<|vision_start|>");
  parts.back().words_after = "<|vision_end|>";
  return parts;
}

/// Returns the frames per second of `count` frames that were taken from a video, which tell their positions.
double sampled_rate(ModelFamily family, const VideoShape& video, std::int64_t count) {
  if (video.is_sampled) return video.fps;
  // transformers' processing_qwen2_5_omni.py takes its default, also for clips that have other rates.
  if (family == ModelFamily::qwen2_5_omni) return 2;
  return static_cast<double>(count) / static_cast<double>(video.frames) * video.fps;
}

template <>
std::vector<MediumPart> parts_of(const Architecture& architecture, const QwenProcessor& processor,
                                 const VideoSource& video, bool values) {
  const FrameChoice choice = frames_of(architecture, processor, video);
  video.check_sizes(choice.frames);
  Patches patches{choice.grid(processor), {}};
  if (values) {
    std::vector<RgbImage> frames;
    video.read(choice.frames,
               [&](const RgbImage& frame) { frames.push_back(resize_frame(frame, choice.size)); });
    QwenProcessor of_resized = processor;
    of_resized.min_pixels = 1;
    of_resized.max_pixels = kMaxPixels;
    patches = qwen_patches(frames, of_resized);
  }
  const VideoShape shape = video.shape();
  if (processor.video) return timed_slots(architecture, choice, shape.fps, patches);
  const double sampled_fps = sampled_rate(architecture.family, shape, std::ssize(choice.frames));
  return {{"", qwen_picture(architecture, {patches.grid.frames, patches.grid.rows, patches.grid.columns},
                            patches.rows, processor.temporal_patch / sampled_fps)}};
}

/// Calls `use`, and names the medium in errors about its size.
template <typename Use>
auto named(const std::string& name, const Use& use) {
  try {
    return use();
  } catch (const Error& error) {
    if (!error.context().empty()) throw;
    throw Error(error.kind(), error.message(), name);
  }
}

}  // namespace

MediaReader::MediaReader(const ModelSpec& model, const std::string& folder, ExifRule exif)
    : model_(model),
      processor_(read_model_processor(model, folder)),
      second_(read_second_processor(model, folder)),
      exif_(exif) {
  if (!model_.architecture) model_.architecture.emplace();
}

/// A model that sees and hears takes every file that does not begin as a picture as a sound.
bool MediaReader::is_sound(const MediumFile& file) const {
  if (second_) return !begins_as_picture(file.bytes);
  return std::holds_alternative<MelOptions>(processor_);
}

MediumContent MediaReader::make(const MediumFile& file, bool values) const {
  return named(file.name, [&] {
    if (second_ && is_sound(file)) return content_of(model_, *second_, file, values, exif_);
    return std::visit(
        [&](const auto& processor) { return content_of(model_, processor, file, values, exif_); },
        processor_);
  });
}

std::vector<MediumPart> MediaReader::video(const VideoSource& video, bool values) const {
  return named(video.name(), [&] {
    return std::visit(
        [&](const auto& processor) { return parts_of(*model_.architecture, processor, video, values); },
        processor_);
  });
}

void MediaReader::check_video(const VideoSource& video) const {
  const FrameChoice choice = named(video.name(), [&] {
    return std::visit(
        [&](const auto& processor) { return frames_of(*model_.architecture, processor, video); }, processor_);
  });
  video.read(choice.frames, [](const RgbImage&) {});
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
    decode_image(file.bytes, file.name, kMaxPixels, exif_);
  }
}

}  // namespace dflop
