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
#include "core/sample.hpp"

namespace dflop {

/// A MediumContent holds the encoder sequences and LLM tokens of one picture, video or sound of a sample.
struct MediumContent {
  std::vector<EncoderSequence> sequences;  ///< with places that count from the medium's first LLM token
  std::vector<std::int32_t> newlines;      ///< places of learned newlines, counted the same way
  std::int64_t tokens = 0;                 ///< LLM tokens
  /// These are each token's time, height and width, counted from the medium's start; empty if the LLM has one
  /// position per token.
  std::vector<std::array<std::int32_t, 3>> positions;
  std::int32_t span = 0;  ///< if `positions` is set: distance to the next text position
};

/// Returns a LLaVA-OneVision picture from its tiles, float[tiles, 3, side, side]. The base tile is first,
/// then the rows of the grid. If `in_grid` is false (one of several pictures in a sample), only the base tile
/// is used. The grid's padding is cut off; if too many patches remain, the grid is shrunk bilinearly to the
/// size that llava_shown() returns. Each row ends with a newline (transformers modeling_llava_onevision.py,
/// pack_image_features). `tiles` is the number of tiles. If `values` is empty, only shapes are made.
/// @throws Error (input) if the number of tiles does not match the picture's size
MediumContent llava_picture(const Architecture& architecture, std::int64_t tiles,
                            std::span<const float> values, ImageSize size, bool in_grid);

/// Returns a LLaVA-OneVision video from its frames, float[frames, 3, side, side]. Each frame is shrunk
/// bilinearly to half its side, rounded up; one newline ends the video (apply_pooling).
MediumContent llava_video(const Architecture& architecture, std::int64_t frames,
                          std::span<const float> values);

/// Returns an InternVL picture from its tiles, float[tiles, 3, side, side]. Each square of patches becomes
/// one token (modeling_internvl.py, pixel_shuffle).
MediumContent internvl_picture(const Architecture& architecture, std::int64_t tiles,
                               std::span<const float> values);

/// A PatchGrid holds the number of temporal slots of a picture or video, and the rows and columns of patches
/// in each slot.
struct PatchGrid {
  std::int64_t slots = 1;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

/// Returns a Qwen2.5-VL picture or video from its patches, float[patches, values], in the order of its
/// processor: slot by slot, within a slot square by square (a square is merged into one token), and within a
/// square row by row. Only videos have `seconds_per_slot` (modeling_qwen2_5_vl.py, get_rope_index,
/// get_window_index).
/// @throws Error (input) for a grid that cannot be merged
MediumContent qwen_picture(const Architecture& architecture, const PatchGrid& grid,
                           std::span<const float> values, std::optional<double> seconds_per_slot);

/// Returns a Qwen2-Audio sound from its log-mel spectrum, float[bins, frames]. The first `valid` frames
/// belong to the sound; the rest are padding (modeling_qwen2_audio.py). `frames` is the number of frames even
/// if `values` is empty.
/// @throws Error (input) for a sound that yields no token, or more rows than the encoder has positions
MediumContent qwen_sound(const Architecture& architecture, std::int64_t frames, std::int64_t valid,
                         std::span<const float> values);

}  // namespace dflop
