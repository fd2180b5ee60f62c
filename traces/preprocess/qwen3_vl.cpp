// This is the rule of Qwen3-VL (transformers image_processing_qwen2_vl.py, video_processing_qwen3_vl.py):
// patches of 16 pixels, and limits on the pixels of all frames of a video together.
#include <algorithm>
#include <cmath>

#include "traces/preprocess/rules.hpp"

namespace dflop {
namespace {

constexpr double kQwen3TokenSide = 32;  ///< pixels: 2x2 patches of 16
constexpr double kQwen3MaxRatio = 200;
constexpr PixelLimits kQwen3ImageLimits = {65'536, 16'777'216};
constexpr PixelLimits kQwen3VideoLimits = {131'072, 786'432};  ///< for frames x height x width
constexpr std::int64_t kQwen3FramesPerSlot = 2;
constexpr double kQwen3SampledFps = 2;
constexpr std::int64_t kQwen3MinFrames = 4;
constexpr std::int64_t kQwen3MaxFrames = 768;

/// A TokenGrid counts the LLM tokens of an image, or of a video's temporal slot.
struct TokenGrid {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

/// Returns the grid of an image, or of `frames` frames of a video (smart_resize). `whole_frames` is their
/// number, rounded to whole slots.
TokenGrid token_grid(double height, double width, double frames, double whole_frames, PixelLimits limits) {
  // nearbyint is Python's round, half to even. Each side has at least one token.
  const auto grid = [](double rows, double columns) {
    return TokenGrid{static_cast<std::int64_t>(std::max(rows, 1.0)),
                     static_cast<std::int64_t>(std::max(columns, 1.0))};
  };
  const double rows = std::nearbyint(height / kQwen3TokenSide);
  const double columns = std::nearbyint(width / kQwen3TokenSide);
  const double pixels = whole_frames * (rows * kQwen3TokenSide) * (columns * kQwen3TokenSide);
  if (pixels > limits.max) {
    const double shrink = std::sqrt(frames * height * width / limits.max);
    return grid(std::floor(height / shrink / kQwen3TokenSide), std::floor(width / shrink / kQwen3TokenSide));
  }
  if (pixels < limits.min) {
    const double grow = std::sqrt(limits.min / (frames * height * width));
    return grid(std::ceil(height * grow / kQwen3TokenSide), std::ceil(width * grow / kQwen3TokenSide));
  }
  return grid(rows, columns);
}

/// Adds `slots` equal images, or temporal slots of a video. Every layer attends over a whole slot, which has
/// 4 patches per token.
void add_token_slots(Encoding& encoding, std::int64_t slots, TokenGrid grid) {
  const std::int64_t tokens = grid.rows * grid.columns;
  encoding.sequences.push_back({slots, 4 * tokens, 4 * tokens * 4 * tokens});
  encoding.output_tokens += slots * tokens;
}

void check_sides(const RecordShapes& shapes, std::string_view column, ImageSize size, double wide,
                 double high) {
  if (std::max(wide, high) / std::min(wide, high) <= kQwen3MaxRatio) return;
  shapes.fail(column, "expected sides in a ratio of at most 200, found " + std::to_string(size.width) + "x" +
                          std::to_string(size.height));
}

Encoding encode_qwen3_images(const RecordShapes& shapes) {
  Encoding encoding;
  for (const ImageRun& run : shapes.images()) {
    check_sides(shapes, "images", run.size, run.size.width, run.size.height);
    add_token_slots(encoding, run.count,
                    token_grid(run.size.height, run.size.width, 1, 1, kQwen3ImageLimits));
  }
  return encoding;
}

Encoding encode_qwen3_video(const RecordShapes& shapes) {
  const std::int64_t sampled = qwen3_sampled_frames(shapes.video_timing());
  if (sampled < kQwen3FramesPerSlot)
    shapes.fail("video_frames", "expected a video of at least 2 frames, found 1");
  const ImageSize size = shapes.video_size();
  double height = size.height;
  double width = size.width;
  if (std::min(height, width) < kQwen3TokenSide) {  // the short side grows to a token's
    const double scale = std::max(kQwen3TokenSide / height, kQwen3TokenSide / width);
    height = std::floor(height * scale);
    width = std::floor(width * scale);
  }
  check_sides(shapes, "video_wh", size, width, height);
  const auto frames = static_cast<double>(sampled);
  const double whole_frames = std::nearbyint(frames / kQwen3FramesPerSlot) * kQwen3FramesPerSlot;
  Encoding encoding;
  // The last frame of an odd number is repeated.
  add_token_slots(encoding, (sampled + 1) / kQwen3FramesPerSlot,
                  token_grid(height, width, frames, whole_frames, kQwen3VideoLimits));
  return encoding;
}

}  // namespace

std::int64_t qwen3_sampled_frames(VideoTiming video) {
  const double wanted = std::floor(static_cast<double>(video.frames) / video.fps * kQwen3SampledFps);
  const double most = static_cast<double>(std::min(kQwen3MaxFrames, video.frames));
  return static_cast<std::int64_t>(std::min(std::max(wanted, static_cast<double>(kQwen3MinFrames)), most));
}

Rule qwen3_vl_rule() {
  return {"qwen3-vl", {encode_text, encode_qwen3_images, encode_qwen3_images, encode_qwen3_video, nullptr}};
}

}  // namespace dflop
