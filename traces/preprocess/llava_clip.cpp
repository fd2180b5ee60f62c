// These are the rules of LLaVA 1.5 (transformers image_processing_clip.py) and LLaVA-NeXT
// (image_processing_llava_next.py, modeling_llava_next.py), both with CLIP-L/14 at 336 pixels.
#include <array>
#include <cmath>
#include <limits>

#include "traces/preprocess/rules.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kClipPixels = 336;
constexpr std::int64_t kClipSide = 24;  ///< patches of 14 pixels
constexpr std::int64_t kClipTokens = kClipSide * kClipSide;
constexpr std::int64_t kClipRows = kClipTokens + 1;  ///< with the class row, which the LLM does not get

/// The image_grid_pinpoints of LLaVA-NeXT, in their order.
constexpr std::array<TileGrid, 5> kNextGrids = {{{2, 1}, {1, 2}, {2, 2}, {1, 3}, {3, 1}}};

EncoderSequences clip_sequences(std::int64_t count) {
  return {count, kClipRows, kClipRows * kClipRows};
}

/// Encodes images: each is one square, cut out of its middle, whatever its size.
Encoding encode_llava15_images(const RecordShapes& shapes) {
  return {{clip_sequences(shapes.image_count())}, shapes.image_count() * kClipTokens};
}

/// Returns the tokens of a grid of tiles (unpad_image): the padding of the image is cut off, nothing is
/// scaled down, and each row ends in a newline token.
std::int64_t next_grid_tokens(ImageSize image, TileGrid grid) {
  const double width = image.width;
  const double height = image.height;
  std::int64_t columns = kClipSide * grid.columns;
  std::int64_t rows = kClipSide * grid.rows;
  const auto wide = static_cast<double>(columns);
  const auto high = static_cast<double>(rows);
  // This is Python's int(round(side, 7)).
  const auto whole = [](double side) { return static_cast<std::int64_t>(std::nearbyint(side * 1e7) / 1e7); };
  if (width / height > wide / high) {
    rows -= (rows - whole(height * (wide / width))) / 2 * 2;
  } else {
    columns -= (columns - whole(width * (high / height))) / 2 * 2;
  }
  return rows * (columns + 1);
}

/// Encodes images: each has its grid of tiles, and the whole image as base tile.
Encoding encode_next_images(const RecordShapes& shapes) {
  std::int64_t count = 0;
  std::int64_t tokens = 0;
  for (const ImageRun& run : shapes.images()) {
    const TileGrid grid = llava_next_grid(run.size);
    count += run.count * (grid.tiles() + 1);
    tokens += run.count * (kClipTokens + next_grid_tokens(run.size, grid));
  }
  return {{clip_sequences(count)}, tokens};
}

}  // namespace

TileGrid llava_next_grid(ImageSize image) {
  const std::int64_t image_pixels = std::int64_t{image.width} * image.height;
  TileGrid best;
  std::int64_t best_effective = -1;
  std::int64_t least_waste = std::numeric_limits<std::int64_t>::max();
  for (const TileGrid& grid : kNextGrids) {
    const std::int64_t width = kClipPixels * grid.columns;
    const std::int64_t height = kClipPixels * grid.rows;
    const double scale =
        std::min(static_cast<double>(width) / image.width, static_cast<double>(height) / image.height);
    const std::int64_t effective = std::min(
        static_cast<std::int64_t>(image.width * scale) * static_cast<std::int64_t>(image.height * scale),
        image_pixels);
    const std::int64_t waste = width * height - effective;
    if (effective > best_effective || (effective == best_effective && waste < least_waste)) {
      best = grid;
      best_effective = effective;
      least_waste = waste;
    }
  }
  return best;
}

Rule llava15_rule() {
  return {"llava-1.5", {encode_text, encode_llava15_images, encode_llava15_images, nullptr, nullptr}};
}

Rule llava_next_rule() {
  return {"llava-next", {encode_text, encode_next_images, encode_next_images, nullptr, nullptr}};
}

}  // namespace dflop
