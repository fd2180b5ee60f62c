// Processed pictures, videos and sounds become encoder sequences here, a function for each family of models.
// Each follows what transformers computes of the same input.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/model/content.hpp"
#include "core/architecture.hpp"
#include "core/sample.hpp"

namespace dflop {

/// A MediumContent is what one picture, video or sound of a sample.
struct MediumContent {
  std::vector<EncoderSequence> sequences;  ///< places count from the medium's first LLM token
  std::vector<std::int32_t> newlines;      ///< places of learned newlines, likewise
  std::int64_t tokens = 0;                 ///< of the LLM
  /// Per token its time, height and width, counted from where the medium begins; empty where the LLM has one
  /// position a token.
  std::vector<std::array<std::int32_t, 3>> positions;
  std::int32_t span = 0;  ///< with positions: by how much the next text's position is later
};

/// Returns a picture of LLaVA-OneVision from its tiles, float[tiles, 3, side, side], the base tile first,
/// then the rows of its grid; or, without `in_grid`, as one of several in a sample, from its base tile. The
/// grid's padding is cut off, what is left shrunk bilinearly to `most_tiles` tiles' rows where it is more
/// than 1.1 times as wide, and each row ended by a newline (transformers modeling_llava_onevision.py,
/// pack_image_features). Without values only shapes are made. `tiles`: how many there are.
/// @throws Error (input) where the tiles are not those of the picture's size
MediumContent llava_picture(const Architecture& architecture, std::int64_t tiles,
                            std::span<const float> values, ImageSize size, bool in_grid);

/// Returns a video of LLaVA-OneVision from its frames, float[frames, 3, side, side]: each shrunk bilinearly
/// to half its side, rounded up, and one newline at the end (apply_pooling).
MediumContent llava_video(const Architecture& architecture, std::int64_t frames,
                          std::span<const float> values);

/// Returns a picture of InternVL from its tiles, float[tiles, 3, side, side]: squares of patches become one
/// token each (modeling_internvl.py, pixel_shuffle).
MediumContent internvl_picture(const Architecture& architecture, std::int64_t tiles,
                               std::span<const float> values);

/// A PatchGrid has the temporal slots of a picture or video, and the patches of each.
struct PatchGrid {
  std::int64_t slots = 1;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

/// Returns a picture or video of Qwen2.5-VL from its patches, float[patches, values], as its processor orders
/// them: slot by slot, squares that are merged together, their patches by rows. A video has
/// `seconds_per_slot` (modeling_qwen2_5_vl.py, get_rope_index, get_window_index).
/// @throws Error (input) for a grid that cannot be merged
MediumContent qwen_picture(const Architecture& architecture, const PatchGrid& grid,
                           std::span<const float> values, std::optional<double> seconds_per_slot);

/// Returns a sound of Qwen2-Audio from its log-mel spectrum, float[bins, frames], of which `valid` are of the
/// sound (modeling_qwen2_audio.py). Without values `frames` says how many there are.
/// @throws Error (input) for a sound that gives no token, or more rows than there are positions
MediumContent qwen_sound(const Architecture& architecture, std::int64_t frames, std::int64_t valid,
                         std::span<const float> values);

}  // namespace dflop
