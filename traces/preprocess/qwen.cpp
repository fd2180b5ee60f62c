// These are the rules of Qwen2-VL and Qwen2.5-VL (QwenLM/Qwen2.5-VL @f0af2996e843
// qwen-vl-utils/src/qwen_vl_utils/vision_process.py; transformers image_processing_qwen2_vl.py,
// modeling_qwen2_5_vl.py), and Qwen2-Audio (transformers processing_qwen2_audio.py, modeling_qwen2_audio.py)
// over Whisper's front end (openai/whisper @c0d2f624c09d whisper/audio.py).
#include <algorithm>
#include <cmath>

#include "traces/preprocess/rules.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kMergedPixels = 28;  ///< side of one LLM token: 2x2 patches of 14 pixels
constexpr std::int64_t kMergedArea = kMergedPixels * kMergedPixels;
constexpr double kMaxRatio = 200;

constexpr PixelLimits kHuggingFace = {4.0 * kMergedArea, 1280.0 * kMergedArea};
constexpr PixelLimits kQwenUtils = {4.0 * kMergedArea, 16384.0 * kMergedArea};

constexpr double kVideoMinTokens = 128;
constexpr double kVideoMaxTokens = 768;
constexpr double kVideoTotalTokens = 128'000 * 0.9;  ///< for all frames
constexpr double kVideoLeastMax = 1.05;              ///< relative to the min
constexpr std::int64_t kFramesPerSlot = 2;
constexpr double kSampledFps = 2;
constexpr std::int64_t kMinSampledFrames = 4;
constexpr std::int64_t kMaxSampledFrames = 768;

using AttentionPairs = std::int64_t (*)(std::int64_t merged_columns, std::int64_t merged_rows);

/// Returns the pairs if every layer attends over the whole slot: (4 patches per merged token)².
std::int64_t full_pairs(std::int64_t columns, std::int64_t rows) {
  const std::int64_t patches = 4 * columns * rows;
  return patches * patches;
}

/// Returns the sum of the squared sides of the windows that `side` merged tokens are cut into: fours and a
/// remainder.
std::int64_t window_squares(std::int64_t side) {
  return side / 4 * 16 + (side % 4) * (side % 4);
}

/// Returns the mean pairs over 32 layers, 28 of which attend inside windows of 4x4 merged tokens, with
/// smaller windows at the border (get_window_index, window_size 112, fullatt_block_indexes 7, 15, 23, 31). A
/// window of w x h merged tokens has 4wh patches, so the sum of squares is 16 (sum of w²) (sum of h²). Both
/// squares are multiples of 16, so the mean is whole.
std::int64_t windowed_pairs(std::int64_t columns, std::int64_t rows) {
  const std::int64_t windowed = 16 * window_squares(columns) * window_squares(rows);
  return (28 * windowed + 4 * full_pairs(columns, rows)) / 32;
}

/// Adds `slots` equal images, or temporal slots of a video, of a resized size.
void add_slots(Encoding& encoding, std::int64_t slots, ImageSize resized, AttentionPairs pairs) {
  const std::int64_t columns = resized.width / kMergedPixels;
  const std::int64_t rows = resized.height / kMergedPixels;
  encoding.sequences.push_back({slots, 4 * columns * rows, pairs(columns, rows)});
  encoding.output_tokens += slots * columns * rows;
}

void check_ratio(const RecordShapes& shapes, std::string_view column, ImageSize size) {
  const double longer = std::max(size.width, size.height);
  if (longer / std::min(size.width, size.height) > kMaxRatio) {
    shapes.fail(column, "expected sides in a ratio of at most 200, found " + std::to_string(size.width) +
                            "x" + std::to_string(size.height));
  }
}

template <const PixelLimits& kLimits, AttentionPairs kPairs>
Encoding encode_qwen_images(const RecordShapes& shapes) {
  Encoding encoding;
  for (const ImageRun& run : shapes.images()) {
    check_ratio(shapes, "images", run.size);
    add_slots(encoding, run.count, qwen_resize(run.size, kLimits.min, kLimits.max), kPairs);
  }
  return encoding;
}

/// Encodes videos for both models: frames sampled and limited by qwen-vl-utils, two to a temporal slot.
template <AttentionPairs kPairs>
Encoding encode_qwen_video(const RecordShapes& shapes) {
  const std::int64_t frames = qwen_sampled_frames(shapes.video_timing());
  if (frames < kFramesPerSlot) shapes.fail("video_frames", "expected a video of at least 2 frames, found 1");
  const ImageSize size = shapes.video_size();
  check_ratio(shapes, "video_wh", size);
  const PixelLimits limits = qwen_video_limits(frames, kMergedArea);
  Encoding encoding;
  add_slots(encoding, frames / kFramesPerSlot, qwen_resize(size, limits.min, limits.max), kPairs);
  return encoding;
}

std::int32_t to_pixels(double multiples) {
  // Each side has at least one token; otherwise a long, thin video frame that must shrink would lose a whole
  // side.
  return static_cast<std::int32_t>(std::max(multiples, 1.0) * kMergedPixels);
}

constexpr double kSamplesPerSecond = 16'000;
constexpr std::int64_t kHop = 160;               ///< samples of one mel frame
constexpr std::int64_t kChunkSamples = 480'000;  ///< 30 s, the encoder's input size
constexpr std::int64_t kChunkPositions = 1'500;  ///< for a full or partial chunk

/// Returns the LLM tokens of a chunk. The stride-2 convolution turns L mel frames into (L - 1) / 2 + 1, and
/// pooling by two halves these, rounded down: (L + 1) / 4 in total.
std::int64_t chunk_tokens(std::int64_t samples) {
  return (samples / kHop + 1) / 4;
}

/// Frames are counted in samples, because 2.07 s * 100 frames a second is 206.99... in floating point.
Encoding encode_audio(const RecordShapes& shapes) {
  const std::int64_t samples = std::llround(shapes.audio_s() * kSamplesPerSecond);
  const std::int64_t full_chunks = samples / kChunkSamples;
  const std::int64_t rest = samples % kChunkSamples;
  const std::int64_t chunks = full_chunks + (rest > 0 ? 1 : 0);
  return {{{chunks, kChunkPositions, kChunkPositions * kChunkPositions}},
          full_chunks * chunk_tokens(kChunkSamples) + chunk_tokens(rest)};
}

/// Cuts a sound of up to 300 s into parts of 2 s, each an encoder sequence of its own; longer sounds are cut
/// into several (transformers modeling_qwen2_5_omni.py; its extractor's chunk_length).
Encoding encode_omni_audio(const RecordShapes& shapes) {
  constexpr std::int64_t kLongest = 300 * 16'000;  // samples
  const std::int64_t samples = std::llround(shapes.audio_s() * kSamplesPerSecond);
  Encoding encoding;
  for (std::int64_t begin = 0; begin < samples; begin += kLongest) {
    const std::int64_t length = std::min(kLongest, samples - begin);
    add_sound_parts(encoding, (length + kHop - 1) / kHop, 200);
  }
  return encoding;
}

}  // namespace

void add_sound_parts(Encoding& encoding, std::int64_t frames, std::int64_t part) {
  const auto add = [&](std::int64_t count, std::int64_t of_frames) {
    const std::int64_t rows = (of_frames + 1) / 2;
    if (count == 0 || rows < 2) return;  // a pair of rows makes a token
    encoding.sequences.push_back({count, rows, rows * rows, true});
    encoding.output_tokens += count * (rows / 2);
  };
  add(frames / part, part);
  add(1, frames % part);
}

ImageSize qwen_resize(ImageSize image, double min_pixels, double max_pixels) {
  const double width = image.width;
  const double height = image.height;
  // nearbyint is Python's round, half to even.
  const ImageSize rounded = {to_pixels(std::nearbyint(width / kMergedPixels)),
                             to_pixels(std::nearbyint(height / kMergedPixels))};
  const double area = static_cast<double>(rounded.width) * rounded.height;
  if (area > max_pixels) {
    const double shrink = std::sqrt(width * height / max_pixels);
    return {to_pixels(std::floor(width / shrink / kMergedPixels)),
            to_pixels(std::floor(height / shrink / kMergedPixels))};
  }
  if (area < min_pixels) {
    const double grow = std::sqrt(min_pixels / (width * height));
    return {to_pixels(std::ceil(width * grow / kMergedPixels)),
            to_pixels(std::ceil(height * grow / kMergedPixels))};
  }
  return rounded;
}

PixelLimits qwen_video_limits(std::int64_t frames, double token_pixels) {
  const double least = kVideoMinTokens * token_pixels;
  const double share =
      std::trunc(kVideoTotalTokens * token_pixels) / static_cast<double>(frames) * kFramesPerSlot;
  const double most = std::min(kVideoMaxTokens * token_pixels, share);
  return {least, std::max(most, std::trunc(kVideoLeastMax * least))};
}

std::int64_t qwen_sampled_frames(VideoTiming video) {
  const auto even = [](double frames) { return std::floor(frames / 2) * 2; };
  const auto available = static_cast<double>(video.frames);
  const double wanted = std::max(available / video.fps * kSampledFps, static_cast<double>(kMinSampledFrames));
  const double most = even(std::min(static_cast<double>(kMaxSampledFrames), available));
  return static_cast<std::int64_t>(even(std::min(wanted, most)));
}

Rule qwen2_vl_rule() {
  constexpr Encode encode_images = encode_qwen_images<kHuggingFace, full_pairs>;
  return {"qwen2-vl", {encode_text, encode_images, encode_images, encode_qwen_video<full_pairs>, nullptr}};
}

Rule qwen25_omni_rule() {
  constexpr Encode encode_images = encode_qwen_images<kHuggingFace, windowed_pairs>;
  return {"qwen2.5-omni",
          {encode_text, encode_images, encode_images, encode_qwen_video<windowed_pairs>, encode_omni_audio}};
}

Rule qwen25_vl_rule() {
  constexpr Encode encode_images = encode_qwen_images<kQwenUtils, windowed_pairs>;
  return {"qwen2.5-vl",
          {encode_text, encode_images, encode_images, encode_qwen_video<windowed_pairs>, nullptr}};
}

Rule qwen2_audio_rule() {
  return {"qwen2-audio", {encode_text, nullptr, nullptr, nullptr, encode_audio}};
}

}  // namespace dflop
