// These are the rules of InternVL 2.5 (OpenGVLab/InternVL @2410d1dbf208:
// internvl_chat/internvl/train/dataset.py and internvl_chat_finetune.py with max_dynamic_patch 12,
// use_thumbnail, 8 to 32 frames).
#include <algorithm>
#include <cmath>
#include <limits>

#include "traces/preprocess/rules.hpp"

namespace dflop {
namespace {

constexpr double kInternvlTilePixels = 448;
constexpr std::int64_t kTilePositions = 1025;  ///< (448 / 14)² patches and the class token
constexpr std::int64_t kTileTokens = 256;      ///< after pixel shuffle by two
constexpr std::int64_t kMaxTiles = 12;
constexpr std::int64_t kMinFrames = 8;
constexpr std::int64_t kMaxFrames = 32;

Encoding encode_internvl_tiles(std::int64_t count) {
  return {{{count, kTilePositions, kTilePositions * kTilePositions}}, count * kTileTokens};
}

/// Returns all grids of up to 12 tiles, the smaller first.
const std::vector<TileGrid>& grids() {
  static const std::vector<TileGrid> all = [] {
    std::vector<TileGrid> grids;
    for (std::int64_t tiles = 1; tiles <= kMaxTiles; ++tiles) {
      for (std::int64_t columns = 1; columns <= tiles; ++columns) {
        if (tiles % columns == 0) grids.push_back({columns, tiles / columns});
      }
    }
    return grids;
  }();
  return all;
}

/// Encodes images, which share the 12 tiles; an image that is cut also gets a thumbnail. If each image may
/// have only one tile, its size does not matter and is not requested.
Encoding encode_internvl_images(const RecordShapes& shapes) {
  const std::int64_t max_tiles = std::max<std::int64_t>(1, kMaxTiles / shapes.image_count());
  if (max_tiles == 1) return encode_internvl_tiles(shapes.image_count());
  std::int64_t count = 0;
  for (const ImageRun& run : shapes.images()) {
    const std::int64_t cut = internvl_grid(run.size, max_tiles).tiles();
    count += run.count * (cut == 1 ? 1 : cut + 1);
  }
  return encode_internvl_tiles(count);
}

Encoding encode_internvl_video(const RecordShapes& shapes) {
  return encode_internvl_tiles(internvl_frames(shapes));
}

}  // namespace

std::int64_t internvl_frames(const RecordShapes& shapes) {
  // A short video repeats its last frame.
  const std::uint64_t choices = kMaxFrames - kMinFrames + 1;
  return kMinFrames + static_cast<std::int64_t>(shapes.random().below(choices));
}

TileGrid internvl_grid(ImageSize image, std::int64_t max_tiles) {
  const double aspect = static_cast<double>(image.width) / image.height;
  const double area = static_cast<double>(image.width) * image.height;
  TileGrid best;
  double best_difference = std::numeric_limits<double>::infinity();
  for (const TileGrid& grid : grids()) {
    if (grid.tiles() > max_tiles) break;
    const double difference =
        std::abs(aspect - static_cast<double>(grid.columns) / static_cast<double>(grid.rows));
    const bool large =
        area > 0.5 * kInternvlTilePixels * kInternvlTilePixels * static_cast<double>(grid.tiles());
    if (difference < best_difference || (difference == best_difference && large)) {
      best = grid;
      best_difference = difference;
    }
  }
  return best;
}

Rule internvl_rule() {
  return {"internvl2.5",
          {encode_text, encode_internvl_images, encode_internvl_images, encode_internvl_video, nullptr}};
}

}  // namespace dflop
