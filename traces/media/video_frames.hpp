// These functions choose the frames that a model family takes from a video, and their size.
#pragma once

#include <cstdint>
#include <vector>

#include "traces/media/processors.hpp"
#include "traces/media/video.hpp"
#include "traces/preprocess/rules.hpp"

namespace dflop {

/// A FrameChoice says which frames of a video a model takes.
struct FrameChoice {
  std::vector<std::int64_t> frames;  ///< their numbers, from 0, increasing
  ImageSize size;                    ///< to which each frame is resized

  /// Returns the grid of patches. The last frame is repeated to fill the last patch in time.
  QwenGrid grid(const QwenProcessor& processor) const;
};

/// Returns the frames of LLaVA-OneVision: every round(fps)-th; if these are more than 32, 32 evenly spread
/// frames (llava/utils.py, process_video_with_decord).
FrameChoice llava_video_frames(const VideoShape& video, const LlavaProcessor& processor);

/// Returns how many frames a processor takes from a video: qwen3_sampled_frames() for Qwen3-VL, else
/// qwen_sampled_frames().
std::int64_t qwen_frame_count(VideoTiming video, const QwenProcessor& processor);
/// Returns evenly spread frames from the first to the last (qwen-vl-utils, torch.linspace; for Qwen3-VL,
/// transformers' numpy.linspace), and the size that the family's limits give them. All frames of a sampled
/// video are taken (qwen-vl-utils, fetch_video); Qwen3-VL's processor samples them again.
/// @throws Error (input) for a video of one frame that is not sampled, and for an aspect ratio over 200
FrameChoice qwen_video_frames(const VideoShape& video, const QwenProcessor& processor);

}  // namespace dflop
