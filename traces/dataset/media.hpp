// These functions turn processed pictures, videos and sounds into encoder sequences. There is one function
// for each kind of medium and model family. Each gives the same result as transformers.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/architecture.hpp"
#include "core/content/contents.hpp"
#include "core/model.hpp"
#include "core/sample.hpp"

namespace dflop {

/// A MediumContent holds the encoder sequences and LLM tokens of one picture, video or sound of a sample.
struct MediumContent {
  std::vector<EncoderSequence> sequences;  ///< with places that count from the medium's first LLM token
  std::vector<std::int32_t> newlines;      ///< places of learned newlines, counted the same way
  std::int64_t tokens = 0;                 ///< LLM tokens
  /// The positions of each token in time, height and width, counted from the medium's start. Empty if the LLM
  /// has one position per token.
  std::vector<std::array<std::int32_t, 3>> positions;
  std::int32_t span = 0;  ///< if `positions` is used: from the medium's start to the next text position
  /// If the medium is a video with its sound: whether each token is of the sound. Otherwise empty.
  std::vector<bool> heard;
};

/// Returns a LLaVA 1.5 picture from its only tile, float[3, side, side], or, if `values` is empty, its
/// shapes. Each patch is a token; so is the class row if the connector gets it.
MediumContent clip_picture(const Architecture& architecture, std::span<const float> values);

/// Returns a LLaVA-NeXT or LLaVA-OneVision picture from its tiles, float[tiles, 3, side, side]. The base tile
/// is first, then the rows of the grid. `tiles` is their number. If `in_grid` is false, for one of several
/// pictures in a sample, only the base tile is used, followed by a newline. Otherwise, the padding of the
/// grid is cut off. If the remaining patches exceed those of OneVision's `most_tiles` tiles by more than a
/// factor of 1.1^2, they are shrunk bilinearly to about that number. Each row of the grid ends with a newline
/// (transformers modeling_llava_onevision.py, pack_image_features). If `values` is empty, only shapes are
/// made.
/// @throws Error (input) if the number of tiles does not match the picture's size
MediumContent llava_picture(const Architecture& architecture, std::int64_t tiles,
                            std::span<const float> values, ImageSize size, bool in_grid);

/// Returns a LLaVA-OneVision video from its frames, float[frames, 3, side, side]. Each frame is shrunk
/// bilinearly to half its side, rounded up; one newline ends the video (apply_pooling).
MediumContent llava_video(const Architecture& architecture, std::int64_t frames,
                          std::span<const float> values);

/// Returns an InternVL picture from its tiles, float[tiles, 3, side, side]. Each square of merged patches
/// becomes one token (modeling_internvl.py, pixel_shuffle).
MediumContent internvl_picture(const Architecture& architecture, std::int64_t tiles,
                               std::span<const float> values);

/// A PatchGrid holds the number of temporal slots of a picture or video, and the rows and columns of patches
/// in each slot.
struct PatchGrid {
  std::int64_t slots = 1;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

/// Returns a Qwen2-VL or Qwen2.5-VL picture or video from its patches, float[patches, values], in the order
/// of its processor: slot by slot; in a slot, by squares of patches that are merged; in a square, by rows.
/// Only videos have `seconds_per_slot`, which Qwen2-VL ignores (modeling_qwen2_5_vl.py, get_rope_index,
/// get_window_index).
/// @throws Error (input) for a grid that cannot be merged
MediumContent qwen_picture(const Architecture& architecture, const PatchGrid& grid,
                           std::span<const float> values, std::optional<double> seconds_per_slot);

/// Returns a video with its sound, for Qwen2.5-Omni: in turn, the video's and the sound's tokens of each
/// chunk of time (transformers processing_qwen2_5_omni.py, get_chunked_index). The two tokens before the
/// medium share a position, and so do the two after it.
MediumContent qwen_video_with_sound(const Architecture& architecture, MediumContent video,
                                    MediumContent sound);

/// Returns a Qwen2-Audio sound from its log-mel spectrum, float[bins, frames]. The first `valid` frames
/// belong to the sound; the rest are padding (modeling_qwen2_audio.py). If the model cuts sounds into parts
/// (SoundGeometry), each part has only its own frames, without padding (modeling_qwen2_5_omni.py). If
/// `values` is empty, only shapes are made, for `frames` frames.
/// @throws Error (input) for a sound that gives no token, or more rows than the encoder has positions
MediumContent qwen_sound(const ModelSpec& model, std::int64_t frames, std::int64_t valid,
                         std::span<const float> values);

}  // namespace dflop
