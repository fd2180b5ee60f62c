// This file reads the preprocessor_config.json of the model families, in the forms of transformers 4 and 5.
#include <initializer_list>

#include "traces/media/processors.hpp"
#include "traces/media/sound.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {
namespace {

constexpr std::int32_t kMaxSide = 8192;
constexpr int kBicubic = 3;  ///< of Pillow's resampling filters

/// Tells whether a key is present and not null: transformers writes null for unset values.
bool is_set(const JsonValue& root, std::string_view key) {
  return root.has(key) && root.at(key).text() != "null";
}

std::int32_t integer_or(const JsonValue& root, std::string_view key, std::int32_t otherwise,
                        std::int32_t most) {
  return is_set(root, key) ? root.at(key).integer<std::int32_t>(1, most) : otherwise;
}

std::array<double, 3> channels(const JsonValue& value, double least) {
  const std::vector<double> numbers = value.numbers(3, least, 1e6);
  return {numbers[0], numbers[1], numbers[2]};
}

void require_on(const JsonValue& root, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (is_set(root, key) && !root.at(key).boolean()) {
      root.at(key).refuse("expected true, found false: pictures are always prepared in this step");
    }
  }
}

/// Rejects other processors, and settings that none of these families uses.
void check_common(const JsonValue& root, const std::vector<std::string_view>& types, bool crops = false) {
  root.require_object();
  // Older files name the processor of pictures as a feature extractor. Files of models that also take sounds
  // name both.
  const std::string_view key =
      is_set(root, "image_processor_type") ? "image_processor_type" : "feature_extractor_type";
  if (is_set(root, key)) root.at(key).choice_index(types);
  require_on(root, {"do_resize", "do_rescale", "do_normalize", "do_convert_rgb"});
  if (is_set(root, "do_center_crop") && root.at("do_center_crop").boolean() != crops) {
    root.at("do_center_crop")
        .refuse(crops ? "expected true, found false: pictures are cut to a square"
                      : "expected false, found true: pictures are not cropped");
  }
  if (is_set(root, "resample") && root.at("resample").integer(0, 5) != kBicubic) {
    root.at("resample").refuse_type("3, which is bicubic");
  }
}

void read_scale(const JsonValue& root, PixelScale& scale) {
  if (is_set(root, "rescale_factor")) scale.rescale = root.at("rescale_factor").number_in(1e-9, 1e9);
  if (is_set(root, "image_mean")) scale.mean = channels(root.at("image_mean"), -1e6);
  if (is_set(root, "image_std")) scale.deviation = channels(root.at("image_std"), 1e-6);
}

/// Reads a side of CLIP's processors: a number, or an object with `key`.
std::int32_t read_clip_side(const JsonValue& value, std::string_view key) {
  return (value.text().starts_with('{') ? value.at(key) : value).integer<std::int32_t>(1, kMaxSide);
}

/// Reads the side of CLIP's tile: the short side after resizing, which must be the side of the square cut
/// out. The default of both is 224.
std::int32_t read_clip_tile(const JsonValue& root) {
  constexpr std::int32_t kDefault = 224;
  const std::int32_t side =
      is_set(root, "size") ? read_clip_side(root.at("size"), "shortest_edge") : kDefault;
  if (!is_set(root, "crop_size") && side != kDefault) {
    root.refuse(
        "expected key 'crop_size', a square of the resized short side, {}, found none, which stands for {}",
        side, kDefault);
  }
  for (const std::string_view key : {"height", "width"}) {
    if (!is_set(root, "crop_size")) break;
    if (read_clip_side(root.at("crop_size"), key) != side)
      root.at("crop_size").refuse_type("a square of the resized short side, {}", side);
  }
  return side;
}

/// Reads the side of square tiles: {"height", "width"}.
std::int32_t read_tile(const JsonValue& root, std::int32_t otherwise) {
  if (!is_set(root, "size")) return otherwise;
  const JsonValue size = root.at("size");
  const auto height = size.at("height").integer<std::int32_t>(1, kMaxSide);
  const auto width = size.at("width").integer<std::int32_t>(1, kMaxSide);
  if (height != width) size.refuse("expected a square, found {}x{}", width, height);
  return height;
}

}  // namespace

namespace {

void read_pinpoints(const JsonValue& root, LlavaProcessor& processor) {
  if (is_set(root, "image_grid_pinpoints")) {
    processor.pinpoints.clear();
    for (const JsonValue& pinpoint : root.at("image_grid_pinpoints").elements()) {
      const std::vector<std::int64_t> sides = pinpoint.integers(1, kMaxSide);
      if (sides.size() != 2) pinpoint.refuse_type("[height, width]");
      processor.pinpoints.push_back(
          {static_cast<std::int32_t>(sides[1]), static_cast<std::int32_t>(sides[0])});
    }
  }
  for (const ImageSize& pinpoint : processor.pinpoints) {
    if (pinpoint.width % processor.tile != 0 || pinpoint.height % processor.tile != 0) {
      root.refuse("expected image_grid_pinpoints that tiles of {0}x{0} fill, found {1}x{2}", processor.tile,
                  pinpoint.width, pinpoint.height);
    }
  }
}

}  // namespace

ClipProcessor parse_clip_processor(std::string_view json, const std::string& file) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root();
  check_common(root,
               {"CLIPImageProcessor", "CLIPImageProcessorFast", "CLIPFeatureExtractor", "LlavaImageProcessor",
                "LlavaImageProcessorFast"},
               true);
  ClipProcessor processor;
  read_scale(root, processor.scale);
  processor.tile = read_clip_tile(root);
  processor.pads = is_set(root, "do_pad") && root.at("do_pad").boolean();
  return processor;
}

LlavaProcessor parse_llava_next_processor(std::string_view json, const std::string& file) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root();
  check_common(root, {"LlavaNextImageProcessor", "LlavaNextImageProcessorFast"}, true);
  LlavaProcessor processor;
  processor.tiles_several = true;
  read_scale(root, processor.scale);
  processor.tile = read_clip_tile(root);
  processor.pinpoints = {{672, 336}, {336, 672}, {672, 672}, {336, 1008}, {1008, 336}};
  read_pinpoints(root, processor);
  return processor;
}

LlavaProcessor parse_llava_processor(std::string_view json, const std::string& file) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root();
  check_common(root, {"LlavaOnevisionImageProcessor", "LlavaOnevisionImageProcessorFast"});
  LlavaProcessor processor;
  read_scale(root, processor.scale);
  processor.tile = read_tile(root, processor.tile);
  read_pinpoints(root, processor);
  return processor;
}

QwenProcessor parse_qwen_processor(std::string_view json, const std::string& file) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 40;
  const JsonDocument document(json, file);
  const JsonValue root = document.root();
  check_common(root, {"Qwen2VLImageProcessor", "Qwen2VLImageProcessorFast", "Qwen2_5_VLImageProcessor"});
  QwenProcessor processor;
  read_scale(root, processor.scale);
  processor.patch = integer_or(root, "patch_size", processor.patch, 1024);
  processor.merge = integer_or(root, "merge_size", processor.merge, 64);
  processor.temporal_patch = integer_or(root, "temporal_patch_size", processor.temporal_patch, 64);
  if (is_set(root, "size")) {
    const JsonValue size = root.at("size");
    processor.min_pixels = size.at("shortest_edge").integer<std::int64_t>(1, kLargest);
    processor.max_pixels = size.at("longest_edge").integer<std::int64_t>(1, kLargest);
  }
  // The keys of transformers 4 take precedence over those in size.
  if (is_set(root, "min_pixels")) {
    processor.min_pixels = root.at("min_pixels").integer<std::int64_t>(1, kLargest);
  }
  if (is_set(root, "max_pixels")) {
    processor.max_pixels = root.at("max_pixels").integer<std::int64_t>(1, kLargest);
  }
  if (processor.min_pixels > processor.max_pixels) {
    root.refuse("expected min_pixels of at most max_pixels, found {} and {}", processor.min_pixels,
                processor.max_pixels);
  }
  return processor;
}

Qwen3VideoRule parse_qwen3_video_rule(std::string_view json, const std::string& file,
                                      const QwenProcessor& pictures) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 40;
  constexpr std::int64_t kMaxFrames = 1'000'000;
  const JsonDocument document(json, file);
  const JsonValue root = document.root();
  check_common(root, {});
  const std::vector<std::string_view> types = {"Qwen3VLVideoProcessor"};
  if (is_set(root, "video_processor_type")) root.at("video_processor_type").choice_index(types);
  struct Side {
    std::string_view key;
    std::int32_t usual;
    std::int32_t expected;
  };
  for (const Side& side : {Side{"patch_size", 16, pictures.patch}, Side{"merge_size", 2, pictures.merge},
                           Side{"temporal_patch_size", 2, pictures.temporal_patch}}) {
    if (const std::int32_t found = integer_or(root, side.key, side.usual, 1024); found != side.expected)
      root.refuse("expected '{}' {}, as for pictures, found {}", side.key, side.expected, found);
  }
  PixelScale scale = pictures.scale;
  read_scale(root, scale);
  if (scale.mean != pictures.scale.mean || scale.deviation != pictures.scale.deviation ||
      scale.rescale != pictures.scale.rescale)
    root.refuse("expected the image_mean, image_std and rescale_factor of pictures, found others");
  for (const std::string_view key : {"cap_pixels_per_frame", "num_frames"}) {
    if (is_set(root, key) && root.at(key).text() != "false")
      root.at(key).refuse_type(
          "null, because frames are sampled by their rate, with limits for whole videos");
  }
  if (is_set(root, "do_sample_frames") && !root.at("do_sample_frames").boolean())
    root.at("do_sample_frames").refuse_type("true");
  Qwen3VideoRule rule;
  rule.token_side = static_cast<double>(pictures.patch * pictures.merge);
  rule.frames_per_slot = pictures.temporal_patch;
  if (is_set(root, "size")) {
    const JsonValue size = root.at("size");
    rule.limits.min = static_cast<double>(size.at("shortest_edge").integer<std::int64_t>(1, kLargest));
    rule.limits.max = static_cast<double>(size.at("longest_edge").integer<std::int64_t>(1, kLargest));
  }
  if (is_set(root, "fps")) rule.fps = root.at("fps").number_in(1e-6, 1e4);
  if (is_set(root, "min_frames"))
    rule.min_frames = root.at("min_frames").integer<std::int64_t>(1, kMaxFrames);
  if (is_set(root, "max_frames"))
    rule.max_frames = root.at("max_frames").integer<std::int64_t>(1, kMaxFrames);
  return rule;
}

MelOptions parse_sound_processor(std::string_view json, const std::string& file, const MelOptions& usual) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root();
  root.require_object();
  const std::vector<std::string_view> types = {"WhisperFeatureExtractor"};
  if (is_set(root, "feature_extractor_type")) root.at("feature_extractor_type").choice_index(types);
  struct Fixed {
    std::string_view key;
    double value;
  };
  const auto chunk = static_cast<double>(usual.chunk);
  const Fixed all[] = {{"sampling_rate", kSoundRate}, {"hop_length", kMelHop},
                       {"n_fft", kMelWindow},         {"chunk_length", chunk / kSoundRate},
                       {"n_samples", chunk},          {"nb_max_frames", chunk / kMelHop},
                       {"padding_value", 0},          {"dither", 0}};
  for (const Fixed& fixed : all) {
    if (is_set(root, fixed.key) && root.at(fixed.key).number() != fixed.value)
      root.at(fixed.key).refuse_type("{}, because nothing else is supported", fixed.value);
  }
  if (is_set(root, "padding_side") && root.at("padding_side").string() != "right")
    root.at("padding_side").refuse_type("\"right\"");
  MelOptions options = usual;
  options.bins = integer_or(root, "feature_size", usual.bins, 512);
  return options;
}

InternvlProcessor parse_internvl_processor(std::string_view json, const std::string& file) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root();
  check_common(root, {"GotOcr2ImageProcessor", "GotOcr2ImageProcessorFast"});
  InternvlProcessor processor;
  read_scale(root, processor.scale);
  processor.tile = read_tile(root, processor.tile);
  processor.min_tiles = integer_or(root, "min_patches", processor.min_tiles, 1024);
  processor.max_tiles = integer_or(root, "max_patches", processor.max_tiles, 1024);
  if (processor.min_tiles > processor.max_tiles) {
    root.at("min_patches")
        .refuse("expected at most max_patches, {}, found {}", processor.max_tiles, processor.min_tiles);
  }
  return processor;
}

}  // namespace dflop
