#include "traces/media/video_frames.hpp"

#include <algorithm>
#include <cmath>

#include "core/refuse.hpp"

namespace dflop {
namespace {

/// Returns torch.linspace(0, last, count).round(), which torch computes in floats, from both ends.
std::vector<std::int64_t> spread_by_torch(std::int64_t last, std::int64_t count) {
  if (count == 1) return {0};
  std::vector<std::int64_t> numbers;
  const auto end = static_cast<float>(last);
  const float step = end / static_cast<float>(count - 1);
  for (std::int64_t i = 0; i < count; ++i) {
    const float place =
        i < count / 2 ? step * static_cast<float>(i) : end - step * static_cast<float>(count - 1 - i);
    numbers.push_back(std::llrint(place));
  }
  return numbers;
}

/// Returns numpy.linspace(0, last, count), rounded by `round`.
template <typename Round>
std::vector<std::int64_t> spread_by_numpy(std::int64_t last, std::int64_t count, const Round& round) {
  std::vector<std::int64_t> numbers;
  const double step = static_cast<double>(last) / static_cast<double>(count - 1);
  for (std::int64_t i = 0; i + 1 < count; ++i)
    numbers.push_back(static_cast<std::int64_t>(round(static_cast<double>(i) * step)));
  numbers.push_back(last);
  return numbers;
}

}  // namespace

QwenGrid FrameChoice::grid(const QwenProcessor& processor) const {
  const auto count = static_cast<std::int64_t>(frames.size());
  return {(count + processor.temporal_patch - 1) / processor.temporal_patch, size.height / processor.patch,
          size.width / processor.patch};
}

FrameChoice llava_video_frames(const VideoShape& video, const LlavaProcessor& processor) {
  FrameChoice choice{{}, {processor.tile, processor.tile}};
  const VideoTiming timing{video.frames, video.fps};
  const std::int64_t step = std::max<std::int64_t>(1, std::llrint(video.fps));
  const std::int64_t count = llava_frames(timing);
  if ((video.frames + step - 1) / step > count) {
    choice.frames = spread_by_numpy(video.frames - 1, count, [](double place) { return std::floor(place); });
    return choice;
  }
  for (std::int64_t number = 0; number < video.frames; number += step) choice.frames.push_back(number);
  return choice;
}

std::int64_t qwen_frame_count(VideoTiming video, const QwenProcessor& processor) {
  return processor.video ? qwen3_sampled_frames(video, *processor.video) : qwen_sampled_frames(video);
}

FrameChoice qwen_video_frames(const VideoShape& video, const QwenProcessor& processor) {
  const bool takes_all = video.is_sampled && !processor.video;
  const std::int64_t count =
      takes_all ? video.frames : qwen_frame_count({video.frames, video.fps}, processor);
  if (count < 2 && !takes_all)
    refuse_input("", "expected a video of at least 2 frames, found {}", video.frames);
  FrameChoice choice;
  if (processor.video) {
    // numpy rounds halves to even, as nearbyint does.
    choice.frames =
        spread_by_numpy(video.frames - 1, count, [](double place) { return std::nearbyint(place); });
    const std::optional<ImageSize> size = qwen3_video_size(video.size, count, *processor.video);
    if (!size) {
      refuse_input("", "expected frames with one side at most 200 times the other, found {}x{}",
                   video.size.width, video.size.height);
    }
    if (std::int64_t{size->width} * size->height > kMaxPixels)
      refuse_input("", "expected frames that are resized to at most {} pixels, found {}x{}", kMaxPixels,
                   size->width, size->height);
    choice.size = *size;
    return choice;
  }
  choice.frames = spread_by_torch(video.frames - 1, count);
  QwenProcessor of_frames = processor;
  const std::int64_t patch = processor.temporal_patch;
  const std::int64_t whole = (count + patch - 1) / patch * patch;  // with repeats of the last frame
  const PixelLimits limits = qwen_video_limits(whole, std::pow(processor.patch * processor.merge, 2));
  of_frames.min_pixels = static_cast<std::int64_t>(limits.min);
  of_frames.max_pixels = static_cast<std::int64_t>(limits.max);
  const QwenGrid grid = qwen_grid(video.size, of_frames, count);
  choice.size = {static_cast<std::int32_t>(grid.columns * processor.patch),
                 static_cast<std::int32_t>(grid.rows * processor.patch)};
  return choice;
}

}  // namespace dflop
