// These are the internals of preprocess(): the rules of the model families and their view of a record.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/sample.hpp"
#include "core/support/random.hpp"
#include "traces/preprocess/preprocess.hpp"

namespace dflop {

/// An ImageRun is `count` consecutive images of one size in a record.
struct ImageRun {
  ImageSize size;
  std::int64_t count = 0;
};

struct VideoTiming {
  std::int64_t frames = 0;
  double fps = 0;
};

/// RecordShapes gives the shapes of one record, with assumptions for missing values. A missing value counts
/// as an assumption, or is an error under `strict`, only when a rule asks for it. A rule must ask at most
/// once.
class RecordShapes {
 public:
  RecordShapes(const Record& record, const PreprocessOptions& options, std::string_view file,
               Assumptions& assumptions)
      : record_(record), options_(options), file_(file), assumptions_(assumptions) {}

  std::int64_t image_count() const { return record_.image_count; }
  std::vector<ImageRun> images() const;
  ImageSize video_size() const;
  VideoTiming video_timing() const;
  double audio_s() const { return *record_.audio_s; }
  std::int64_t text_tokens() const;

  /// Returns random numbers that depend only on the seed and the record's id, so that the order of records
  /// does not matter.
  Random random() const;

  [[noreturn]] void fail(std::string_view column, std::string_view message) const;

 private:
  void assume(std::string_view column, std::string_view option, std::int64_t& count) const;

  const Record& record_;
  const PreprocessOptions& options_;
  std::string_view file_;
  Assumptions& assumptions_;
};

using Encode = Encoding (*)(const RecordShapes&);

struct Rule {
  std::string_view name;
  std::array<Encode, kModalities> encode{};  ///< by Modality; null if the rule does not take the modality
  std::optional<std::int64_t> max_text_tokens = std::nullopt;  ///< longer texts are cut to this
};

inline Encoding encode_text(const RecordShapes&) {
  return {};
}

Rule llava_ov_rule();
Rule llava_ov_dflop_rule();
Rule llava15_rule();
Rule llava_next_rule();
Rule internvl_rule();
Rule qwen2_vl_rule();
Rule qwen25_vl_rule();
Rule qwen25_omni_rule();
Rule qwen3_vl_rule();
Rule qwen2_audio_rule();
Rule tiny_vlm_rule();

/// Returns the rule of models without an encoder.
inline Rule text_rule() {
  return {"text", {encode_text}};
}

/// A TileGrid describes the tiles of an image, without base tile or thumbnail.
struct TileGrid {
  std::int64_t columns = 0;
  std::int64_t rows = 0;

  std::int64_t tiles() const { return columns * rows; }
};

/// Returns the best grid of up to 6x6 tiles of 384 pixels for an image: the grid with the largest effective
/// resolution; among equals, with the least waste; then the first (LLaVA-NeXT llava/mm_utils.py,
/// select_best_resolution).
TileGrid llava_grid(ImageSize image);

/// Returns LLaVA-NeXT's grid of tiles of 336 pixels for an image: 2x1, 1x2, 2x2, 1x3 or 3x1, chosen like
/// llava_grid()'s.
TileGrid llava_next_grid(ImageSize image);

/// Returns the number of frames that LLaVA-OneVision takes from a video: one per second or, if that exceeds
/// 32, 32 evenly spread frames (llava/utils.py, process_video_with_decord).
std::int64_t llava_frames(VideoTiming video);

/// Returns the number of frames that InternVL's training draws from a video: a uniform random number that
/// does not depend on the video's length.
std::int64_t internvl_frames(const RecordShapes& shapes);

/// Returns the grid of up to `max_tiles` (at most 12) tiles of 448 pixels with the closest aspect ratio
/// (InternVL internvl_chat/internvl/train/dataset.py, find_closest_aspect_ratio).
TileGrid internvl_grid(ImageSize image, std::int64_t max_tiles);

/// Adds the second encoder's sequences of a sound of `frames` frames that is cut into parts of `part` frames:
/// the second convolution takes every other frame, and the connector averages pairs of rows.
void add_sound_parts(Encoding& encoding, std::int64_t frames, std::int64_t part);

/// Returns multiples of 28 pixels near the image's size with an area between the limits (QwenLM/Qwen2.5-VL
/// qwen-vl-utils, smart_resize).
ImageSize qwen_resize(ImageSize image, double min_pixels, double max_pixels);

struct PixelLimits {
  double min = 0;
  double max = 0;
};

/// Returns the limits of each of `frames` sampled frames of a video; `token_pixels` is the number of pixels
/// of one LLM token (qwen-vl-utils, fetch_video).
PixelLimits qwen_video_limits(std::int64_t frames, double token_pixels);

/// Returns the number of frames that are sampled from a video: an even number, 2 per second, from 4 to 768
/// (qwen-vl-utils, smart_nframes). It is below 4 if the video has fewer frames, and 0 if it has only one.
std::int64_t qwen_sampled_frames(VideoTiming video);

/// A Qwen3VideoRule holds the settings of Qwen3-VL's video processor, by default as its class sets them.
/// Unlike Qwen2-VL's, the limits are for the pixels of all sampled frames together.
struct Qwen3VideoRule {
  PixelLimits limits = {131'072, 786'432};
  double token_side = 32;  ///< pixels
  double fps = 2;          ///< sampled frames per second
  std::int64_t min_frames = 4;
  std::int64_t max_frames = 768;
  std::int64_t frames_per_slot = 2;
};

/// Returns the number of frames that Qwen3-VL samples from a video: by default 2 per second, from 4 to 768,
/// but at most those that it has (transformers video_processing_qwen3_vl.py, sample_frames).
std::int64_t qwen3_sampled_frames(VideoTiming video, const Qwen3VideoRule& rule = {});

/// Returns the size to which Qwen3-VL resizes each of `frames` sampled frames (smart_resize); nullopt for an
/// aspect ratio over 200, which it does not take.
std::optional<ImageSize> qwen3_video_size(ImageSize frame, std::int64_t frames,
                                          const Qwen3VideoRule& rule = {});

}  // namespace dflop
