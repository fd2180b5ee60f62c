// Models small enough to be trained by tests and on small machines: the tiles and frames of LLaVA-OneVision
// (traces/preprocess/llava.cpp), so that samples differ as much as real ones do, each of a few tokens.
#include "traces/preprocess/rules.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kTilePatches = 16;  ///< 4x4
constexpr std::int64_t kTileTokens = 4;    ///< of the LLM: each of 2x2 patches
constexpr std::int64_t kMaxTextTokens = 256;

Encoding tiles(std::int64_t count) {
  return {{{count, kTilePatches, kTilePatches * kTilePatches}}, count * kTileTokens};
}

/// One image: its grid, and the whole image as base tile.
Encoding encode_image(const RecordShapes& shapes) {
  return tiles(llava_grid(shapes.images().front().size).tiles() + 1);
}

/// Several images: one tile each, whatever its size.
Encoding encode_images(const RecordShapes& shapes) {
  return tiles(shapes.image_count());
}

Encoding encode_video(const RecordShapes& shapes) {
  return tiles(llava_frames(shapes.video_timing()));
}

}  // namespace

Rule tiny_vlm_rule() {
  return {"tiny-vlm", {encode_text, encode_image, encode_images, encode_video, nullptr}, kMaxTextTokens};
}

}  // namespace dflop
