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

/// A TokenGrid counts the LLM tokens of an image, or of a video's temporal slot.
struct TokenGrid {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

/// Returns the grid of an image, or of `frames` frames of a video (smart_resize). `whole_frames` is their
/// number, rounded to whole slots.
TokenGrid token_grid(double height, double width, double frames, double whole_frames, PixelLimits limits,
                     double side) {
  // nearbyint is Python's round, half to even. Each side has at least one token.
  const auto grid = [](double rows, double columns) {
    return TokenGrid{static_cast<std::int64_t>(std::max(rows, 1.0)),
                     static_cast<std::int64_t>(std::max(columns, 1.0))};
  };
  const double rows = std::nearbyint(height / side);
  const double columns = std::nearbyint(width / side);
  const double pixels = whole_frames * (rows * side) * (columns * side);
  if (pixels > limits.max) {
    const double shrink = std::sqrt(frames * height * width / limits.max);
    return grid(std::floor(height / shrink / side), std::floor(width / shrink / side));
  }
  if (pixels < limits.min) {
    const double grow = std::sqrt(limits.min / (frames * height * width));
    return grid(std::ceil(height * grow / side), std::ceil(width * grow / side));
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

[[noreturn]] void refuse_sides(const RecordShapes& shapes, std::string_view column, ImageSize size) {
  shapes.fail(column, "expected sides in a ratio of at most 200, found " + std::to_string(size.width) + "x" +
                          std::to_string(size.height));
}

Encoding encode_qwen3_images(const RecordShapes& shapes) {
  Encoding encoding;
  for (const ImageRun& run : shapes.images()) {
    const double longer = std::max(run.size.width, run.size.height);
    if (longer / std::min(run.size.width, run.size.height) > kQwen3MaxRatio)
      refuse_sides(shapes, "images", run.size);
    add_token_slots(encoding, run.count,
                    token_grid(run.size.height, run.size.width, 1, 1, kQwen3ImageLimits, kQwen3TokenSide));
  }
  return encoding;
}

Encoding encode_qwen3_video(const RecordShapes& shapes) {
  const std::int64_t sampled = qwen3_sampled_frames(shapes.video_timing());
  const std::int64_t per_slot = Qwen3VideoRule().frames_per_slot;
  if (sampled < per_slot) shapes.fail("video_frames", "expected a video of at least 2 frames, found 1");
  const ImageSize size = shapes.video_size();
  const std::optional<ImageSize> resized = qwen3_video_size(size, sampled);
  if (!resized) refuse_sides(shapes, "video_wh", size);
  Encoding encoding;
  const auto side = static_cast<std::int32_t>(kQwen3TokenSide);
  // The last frame of an odd number is repeated.
  add_token_slots(encoding, (sampled + 1) / per_slot, {resized->height / side, resized->width / side});
  return encoding;
}

}  // namespace

std::int64_t qwen3_sampled_frames(VideoTiming video, const Qwen3VideoRule& rule) {
  const double wanted = std::floor(static_cast<double>(video.frames) / video.fps * rule.fps);
  const auto most = static_cast<double>(std::min(rule.max_frames, video.frames));
  return static_cast<std::int64_t>(std::min(std::max(wanted, static_cast<double>(rule.min_frames)), most));
}

std::optional<ImageSize> qwen3_video_size(ImageSize frame, std::int64_t frames, const Qwen3VideoRule& rule) {
  double height = frame.height;
  double width = frame.width;
  if (std::min(height, width) < rule.token_side) {  // the short side grows to a token's
    const double scale = std::max(rule.token_side / height, rule.token_side / width);
    height = std::floor(height * scale);
    width = std::floor(width * scale);
  }
  if (std::max(width, height) / std::min(width, height) > kQwen3MaxRatio) return std::nullopt;
  const auto slot = static_cast<double>(rule.frames_per_slot);
  const double whole_frames = std::nearbyint(static_cast<double>(frames) / slot) * slot;
  const TokenGrid grid =
      token_grid(height, width, static_cast<double>(frames), whole_frames, rule.limits, rule.token_side);
  const auto side = static_cast<std::int64_t>(rule.token_side);
  return ImageSize{static_cast<std::int32_t>(grid.columns * side),
                   static_cast<std::int32_t>(grid.rows * side)};
}

Rule qwen3_vl_rule() {
  return {"qwen3-vl", {encode_text, encode_qwen3_images, encode_qwen3_images, encode_qwen3_video, nullptr}};
}

}  // namespace dflop
