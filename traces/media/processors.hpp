// These processors turn pictures into the inputs of encoders, bit for bit like transformers' PIL image
// processors (version 5.23). The shape of the result depends only on a picture's size.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "traces/media/image.hpp"
#include "traces/preprocess/rules.hpp"

namespace dflop {

/// A PixelScale maps a byte b of channel c to (float(b * rescale) - mean[c]) / deviation[c], in floats.
struct PixelScale {
  double rescale = 1.0 / 255;
  std::array<double, 3> mean = {0.48145466, 0.4578275, 0.40821073};
  std::array<double, 3> deviation = {0.26862954, 0.26130258, 0.27577711};
};

/// Tiles holds pixels of shape [count, 3, side, side].
struct Tiles {
  std::int64_t count = 0;
  std::int64_t side = 0;
  std::vector<float> pixels;
};

/// A ClipProcessor is the processor of LLaVA 1.5: it resizes a picture's short side to the tile's and cuts
/// the tile out of the middle, so parts of long sides are lost.
struct ClipProcessor {
  std::int32_t tile = 336;
  bool pads = false;  ///< first pads the picture to a square with the mean color
  PixelScale scale;
};
/// Reads the processor of LLaVA 1.5. Missing keys have the defaults of its class in transformers, tiles of
/// 224 pixels. @throws what parse_llava_processor() throws
ClipProcessor parse_clip_processor(std::string_view json, const std::string& file);
/// Rejects a picture that would be too large after it is resized or padded. @throws Error (input)
void require_clip_size(ImageSize image, const ClipProcessor& processor);
/// Makes the only tile of a picture. @throws what require_clip_size() throws
Tiles clip_tile(const RgbImage& image, const ClipProcessor& processor);

/// A LlavaProcessor is the processor of LLaVA-OneVision and LLaVA-NeXT. Pinpoints are the sizes that it
/// permits for a grid of tiles. The first tile is the whole picture, squeezed into a square. The next tiles
/// cut up a second version of the picture, which is scaled to fit into llava_pinpoint() and padded with
/// black. The defaults of mean and deviation come from transformers' class; a model's file has its own.
struct LlavaProcessor {
  std::int32_t tile = 384;
  std::vector<ImageSize> pinpoints = default_pinpoints();
  bool tiles_several = false;  ///< cuts each of several pictures of a sample into tiles (LLaVA-NeXT)
  PixelScale scale = {1.0 / 255, {0.48145466, 0.4578275, 0.40821073}, {0.26862954, 0.26130258, 0.27577711}};

  /// Returns the sizes of all grids from 1x1 to 6x6 tiles of 384 pixels.
  static std::vector<ImageSize> default_pinpoints();
};

/// Reads a preprocessor_config.json. Missing keys keep the defaults of the struct. @throws Error (input) with
/// `file` and key for a different processor, resampling that is not bicubic, do_* flags that are off, and
/// sizes out of range.
LlavaProcessor parse_llava_processor(std::string_view json, const std::string& file);
/// Reads the processor of LLaVA-NeXT. Missing keys have the defaults of its class in transformers. @throws
/// what parse_llava_processor() throws
LlavaProcessor parse_llava_next_processor(std::string_view json, const std::string& file);

/// Returns the pinpoint in which a picture keeps the most pixels; among equal pinpoints, the one that wastes
/// the least area.
/// @throws Error (input) if the picture would have no pixel in any pinpoint.
ImageSize llava_pinpoint(ImageSize image, const LlavaProcessor& processor);
/// A LlavaGrid says which patches of a picture's tiles reach the LLM.
struct LlavaGrid {
  std::int64_t tile_rows = 0;
  std::int64_t tile_columns = 0;
  std::int64_t top = 0;   ///< rows of padding patches cut off at the top; the same number is cut off below
  std::int64_t left = 0;  ///< columns of padding patches cut off on each side
  std::int64_t rows = 0;  ///< rows of the remaining patches
  std::int64_t columns = 0;
  std::int64_t shown_rows = 0;  ///< rows after shrinking
  std::int64_t shown_columns = 0;
};

/// Returns the grid of a picture that is fit into a pinpoint. `side` is the number of patches on a tile's
/// side. If the remaining patches exceed those of `most_tiles` tiles, if not 0, by more than a factor
/// of 1.1^2, the grid is shrunk to about that many patches (transformers modeling_llava_onevision.py,
/// pack_image_features).
LlavaGrid llava_shown(ImageSize image, ImageSize pinpoint, std::int64_t tile, std::int64_t side,
                      std::int64_t most_tiles);
/// Returns the number of tiles that llava_tiles() makes. @throws what llava_pinpoint() throws
std::int64_t llava_tile_count(ImageSize image, const LlavaProcessor& processor);
/// Makes the tiles of a picture that is the only one of its sample. @throws what llava_pinpoint() throws
Tiles llava_tiles(const RgbImage& image, const LlavaProcessor& processor);
/// Rejects a picture that would be too large for llava_tile_of_several(), which pads it to a square.
/// @throws Error (input)
void require_llava_square(ImageSize image);
/// Makes the only tile of a picture in a sample with several pictures. Pads the picture to a square with the
/// mean color, and resizes the square to the tile.
/// @throws what require_llava_square() throws
Tiles llava_tile_of_several(const RgbImage& image, const LlavaProcessor& processor);
/// Makes the tile of a video's frame, which is squeezed into a square (LlavaOnevisionVideoProcessor).
Tiles llava_frame_tile(const RgbImage& frame, const LlavaProcessor& processor);

/// A QwenProcessor is the processor of Qwen2-VL, 2.5-VL and Qwen3-VL: it resizes a picture to multiples of
/// the patch and makes a row for each patch.
struct QwenProcessor {
  std::int32_t patch = 14;
  std::int32_t merge = 2;           ///< a block of merge x merge patches becomes one token
  std::int32_t temporal_patch = 2;  ///< frames in a patch; a picture is repeated to fill it
  std::int64_t min_pixels = 56 * 56;
  std::int64_t max_pixels = 28 * 28 * 1280;
  PixelScale scale;
  /// The rule of Qwen3-VL's videos; nullopt: videos are sampled and limited as qwen-vl-utils does.
  std::optional<Qwen3VideoRule> video = std::nullopt;
};
QwenProcessor parse_qwen_processor(std::string_view json, const std::string& file);
/// Reads Qwen3VLVideoProcessor's settings from a video_preprocessor_config.json. Missing keys have the
/// defaults of its class. @throws Error (input) with `file` and key for a different processor, and for
/// patches and values of colors that differ from the processor of pictures
Qwen3VideoRule parse_qwen3_video_rule(std::string_view json, const std::string& file,
                                      const QwenProcessor& pictures);

/// A QwenGrid counts patches in time, height and width.
struct QwenGrid {
  std::int64_t frames = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  std::int64_t patches() const { return frames * rows * columns; }
  bool operator==(const QwenGrid&) const = default;
};

struct Patches {
  QwenGrid grid;
  std::vector<float>
      rows;  ///< [patches, 3 * temporal_patch * patch * patch], block by block of merge x merge
};

/// Returns the grid of a picture (`frames` = 1), or of a video's frames, which have one size. The last frame
/// is repeated until the number of frames is a multiple of temporal_patch. `processor` limits the pixels of
/// each frame. For a video, the caller sets these limits to those of transformers' video processor.
/// @throws Error (input) for an aspect ratio over 200, or too large a result
QwenGrid qwen_grid(ImageSize image, const QwenProcessor& processor, std::int64_t frames = 1);
/// Makes the patches of one picture, or of a video's frames. @throws Error (input) if there are no frames or
/// if frames differ in size; what qwen_grid() throws
Patches qwen_patches(std::span<const RgbImage> frames, const QwenProcessor& processor);

/// An InternvlProcessor makes the grid of tiles with the nearest aspect ratio, followed by a thumbnail if
/// there is more than one tile.
struct InternvlProcessor {
  std::int32_t tile = 448;
  std::int32_t min_tiles = 1;
  std::int32_t max_tiles = 12;
  PixelScale scale = {1.0 / 255, {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
};
/// Reads a preprocessor_config.json. Ignores its key crop_to_patches, because transformers' InternVLProcessor
/// always cuts pictures into tiles (processing_internvl.py).
InternvlProcessor parse_internvl_processor(std::string_view json, const std::string& file);

std::int64_t internvl_tile_count(ImageSize image, const InternvlProcessor& processor);
Tiles internvl_tiles(const RgbImage& image, const InternvlProcessor& processor);

}  // namespace dflop
