// These are the rules of LLaVA-OneVision (LLaVA-VL/LLaVA-NeXT @df179663ae8b, scripts/train/finetune_ov.sh:
// SigLIP-so400m/14 at 384 pixels, anyres_max_9 over (1x1)..(6x6), spatial_unpad, 32 frames at most) and the
// public DFLOP code's variant of it (BDAI-Research/DFLOP @60e86d859041, dflop/data.py). This file also has
// tiny-vlm, for models small enough to be trained in tests and on small machines: it has LLaVA-OneVision's
// tiles and frames, so that samples vary as much as real ones, but only a few tokens for each.
#include <algorithm>
#include <cmath>
#include <limits>

#include "traces/preprocess/rules.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kTilePixels = 384;
constexpr std::int64_t kTileSide = 27;  ///< patches: floor(384 / 14)
constexpr std::int64_t kLlavaTileTokens = kTileSide * kTileSide;
constexpr std::int64_t kMaxGridSide = 6;
constexpr std::int64_t kMaxGridTiles = 9;  ///< anyres_max_9: larger grids of tokens are scaled down to it
constexpr std::int64_t kLlavaMaxFrames = 32;
constexpr std::int64_t kFrameTokens = 210;  ///< 14 * 15: pooled to ceil(27 / 2) a side, with a newline a row

EncoderSequences llava_sequences(std::int64_t count) {
  return {count, kLlavaTileTokens, kLlavaTileTokens * kLlavaTileTokens};
}

/// Returns Python's `int(a // b)` of floats, which is exact if the quotient rounds to a whole number.
std::int64_t floor_divide(double a, double b) {
  return std::llround((a - std::fmod(a, b)) / b);
}

/// Returns the LLM tokens of the grid of tiles (llava/model/llava_arch.py, unpad_image and anyres_max):
/// the padding of the image is cut off, the rest scaled down to nine tiles' tokens, and each row ends
/// in a newline token.
std::int64_t grid_tokens(ImageSize image, TileGrid grid) {
  const double width = image.width;
  const double height = image.height;
  std::int64_t columns = kTileSide * grid.columns;
  std::int64_t rows = kTileSide * grid.rows;
  const double wide = static_cast<double>(columns);
  const double high = static_cast<double>(rows);
  if (width / height > wide / high) {
    rows -= (rows - static_cast<std::int64_t>(height * (wide / width))) / 2 * 2;
  } else {
    columns -= (columns - static_cast<std::int64_t>(width * (high / height))) / 2 * 2;
  }
  const double scale = std::sqrt(static_cast<double>(rows * columns) / (kMaxGridTiles * kLlavaTileTokens));
  if (scale > 1.1) {
    rows = floor_divide(static_cast<double>(rows), scale);
    columns = floor_divide(static_cast<double>(columns), scale);
  }
  return rows * (columns + 1);
}

/// Encodes one image: its grid and the whole image as base tile; the base tile gives `kBaseTokens` to the
/// LLM.
template <std::int64_t kBaseTokens>
Encoding encode_llava_image(const RecordShapes& shapes) {
  const ImageSize image = shapes.images().front().size;
  const TileGrid grid = llava_grid(image);
  return {{llava_sequences(grid.tiles() + 1)}, kBaseTokens + grid_tokens(image, grid)};
}

/// Encodes several images: each is padded to a square and one tile, with one newline, whatever its size.
Encoding encode_llava_images(const RecordShapes& shapes) {
  return {{llava_sequences(shapes.image_count())}, shapes.image_count() * (kLlavaTileTokens + 1)};
}

Encoding encode_llava_video(const RecordShapes& shapes) {
  const std::int64_t frames = llava_frames(shapes.video_timing());
  return {{llava_sequences(frames)}, frames * kFrameTokens};
}

constexpr std::int64_t kTinyTilePatches = 16;  ///< 4x4
constexpr std::int64_t kTinyTileTokens = 4;    ///< to the LLM: one for each 2x2 patches
constexpr std::int64_t kTinyTextTokens = 256;

Encoding tiny_tiles(std::int64_t count) {
  return {{{count, kTinyTilePatches, kTinyTilePatches * kTinyTilePatches}}, count * kTinyTileTokens};
}

/// Encodes one image: its grid, and the whole image as base tile.
Encoding encode_tiny_image(const RecordShapes& shapes) {
  return tiny_tiles(llava_grid(shapes.images().front().size).tiles() + 1);
}

/// Encodes several images: one tile each, whatever its size.
Encoding encode_tiny_images(const RecordShapes& shapes) {
  return tiny_tiles(shapes.image_count());
}

Encoding encode_tiny_video(const RecordShapes& shapes) {
  return tiny_tiles(llava_frames(shapes.video_timing()));
}

}  // namespace

TileGrid llava_grid(ImageSize image) {
  const std::int64_t image_pixels = std::int64_t{image.width} * image.height;
  TileGrid best;
  std::int64_t best_effective = -1;
  std::int64_t least_waste = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t columns = 1; columns <= kMaxGridSide; ++columns) {
    for (std::int64_t rows = 1; rows <= kMaxGridSide; ++rows) {
      const std::int64_t width = kTilePixels * columns;
      const std::int64_t height = kTilePixels * rows;
      const double scale =
          std::min(static_cast<double>(width) / image.width, static_cast<double>(height) / image.height);
      const auto scaled_width = static_cast<std::int64_t>(image.width * scale);
      const auto scaled_height = static_cast<std::int64_t>(image.height * scale);
      const std::int64_t effective = std::min(scaled_width * scaled_height, image_pixels);
      const std::int64_t waste = width * height - effective;
      if (effective > best_effective || (effective == best_effective && waste < least_waste)) {
        best = {columns, rows};
        best_effective = effective;
        least_waste = waste;
      }
    }
  }
  return best;
}

std::int64_t llava_frames(VideoTiming video) {
  // This is Python's round, half to even. Videos below half a frame a second keep every frame.
  const std::int64_t step = std::max<std::int64_t>(1, std::llrint(video.fps));
  return std::min((video.frames + step - 1) / step, kLlavaMaxFrames);
}

Rule llava_ov_rule() {
  return {
      "llava-ov",
      {encode_text, encode_llava_image<kLlavaTileTokens>, encode_llava_images, encode_llava_video, nullptr}};
}

Rule llava_ov_dflop_rule() {
  return {"llava-ov-dflop",
          {encode_text, encode_llava_image<0>, encode_llava_images, encode_llava_video, nullptr}};
}

Rule tiny_vlm_rule() {
  return {"tiny-vlm",
          {encode_text, encode_tiny_image, encode_tiny_images, encode_tiny_video, nullptr},
          kTinyTextTokens};
}

}  // namespace dflop
