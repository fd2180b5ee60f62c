#include "traces/media/processors.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "core/refuse.hpp"
#include "traces/media/resize.hpp"

namespace dflop {
namespace {

/// A ScaledBytes has the scaled floats of all 256 bytes for each channel, so that each is divided only once.
using ScaledBytes = std::array<std::array<float, 256>, 3>;

ScaledBytes scaled_bytes(const PixelScale& scale) {
  ScaledBytes all;
  for (std::size_t c = 0; c < 3; ++c) {
    const auto mean = static_cast<float>(scale.mean[c]);
    const auto deviation = static_cast<float>(scale.deviation[c]);
    for (std::size_t byte = 0; byte < 256; ++byte) {
      all[c][byte] = (static_cast<float>(static_cast<double>(byte) * scale.rescale) - mean) / deviation;
    }
  }
  return all;
}

std::size_t pixel_at(const RgbImage& image, std::int64_t y, std::int64_t x) {
  return 3 * static_cast<std::size_t>(y * image.size.width + x);
}

/// Appends the square of a picture with its upper left corner at (y, x), channel by channel.
void append_tile(Tiles& tiles, const RgbImage& image, std::int64_t y, std::int64_t x,
                 const ScaledBytes& floats) {
  ++tiles.count;
  for (std::size_t c = 0; c < 3; ++c) {
    for (std::int64_t row = y; row < y + tiles.side; ++row) {
      const std::uint8_t* bytes = image.pixels.data() + pixel_at(image, row, x) + c;
      for (std::int64_t column = 0; column < tiles.side; ++column) {
        tiles.pixels.push_back(floats[c][bytes[3 * column]]);
      }
    }
  }
}

/// Appends all tiles of a picture, row by row; the tile's side must divide the picture's sides.
void append_grid(Tiles& tiles, const RgbImage& image, const ScaledBytes& floats) {
  for (std::int64_t y = 0; y < image.size.height; y += tiles.side) {
    for (std::int64_t x = 0; x < image.size.width; x += tiles.side) append_tile(tiles, image, y, x, floats);
  }
}

Tiles empty_tiles(std::int64_t count, std::int32_t side) {
  Tiles tiles;
  tiles.side = side;
  tiles.pixels.reserve(static_cast<std::size_t>(3 * count * side * side));
  return tiles;
}

/// Centers a picture in a larger one of one color; of an odd remainder, the upper left gets less.
RgbImage in_the_middle(const RgbImage& image, ImageSize size, const std::array<std::uint8_t, 3>& color) {
  const auto pixels = static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height);
  RgbImage out{size, std::vector<std::uint8_t>(3 * pixels)};
  for (std::size_t i = 0; i < out.pixels.size(); ++i) out.pixels[i] = color[i % 3];
  const std::int64_t top = (size.height - image.size.height) / 2;
  const std::int64_t left = (size.width - image.size.width) / 2;
  for (std::int64_t y = 0; y < image.size.height; ++y) {
    std::copy_n(image.pixels.data() + pixel_at(image, y, 0), 3 * static_cast<std::size_t>(image.size.width),
                out.pixels.data() + pixel_at(out, top + y, left));
  }
  return out;
}

std::array<std::uint8_t, 3> mean_color(const PixelScale& scale) {
  std::array<std::uint8_t, 3> color{};
  for (std::size_t c = 0; c < 3; ++c) color[c] = static_cast<std::uint8_t>(scale.mean[c] * 255);
  return color;
}

/// Returns the size at which a picture's short side is the tile's; the long side is rounded down.
ImageSize clip_size(ImageSize image, const ClipProcessor& processor) {
  const std::int32_t side = processor.tile;
  const auto longer = [&](std::int32_t long_side, std::int32_t short_side) {
    return static_cast<std::int32_t>(
        std::min<std::int64_t>(std::int64_t{side} * long_side / short_side, 1 << 30));
  };
  if (image.width <= image.height) return {side, longer(image.height, image.width)};
  return {longer(image.width, image.height), side};
}

/// Resizes a picture to clip_size() and cuts the tile out of its middle.
Tiles center_tile(const RgbImage& image, const ClipProcessor& processor) {
  require_clip_size(image.size, processor);
  const RgbImage resized = resize_bicubic(image, clip_size(image.size, processor));
  Tiles tiles = empty_tiles(1, processor.tile);
  append_tile(tiles, resized, (resized.size.height - processor.tile) / 2,
              (resized.size.width - processor.tile) / 2, scaled_bytes(processor.scale));
  return tiles;
}

/// Returns the largest size with a picture's aspect ratio inside another size (get_patch_output_size).
ImageSize fitted(ImageSize image, ImageSize within) {
  const double wide = static_cast<double>(within.width) / image.width;
  const double high = static_cast<double>(within.height) / image.height;
  const auto scaled = [](std::int32_t side, double scale, std::int32_t most) {
    return static_cast<std::int32_t>(std::min(std::ceil(side * scale), static_cast<double>(most)));
  };
  if (wide < high) return {within.width, scaled(image.height, wide, within.height)};
  return {scaled(image.width, high, within.width), within.height};
}

/// Returns the nearest size that is a multiple of the patches (smart_resize). Python rounds halves to even.
ImageSize smart_size(ImageSize image, const QwenProcessor& processor) {
  const double factor = processor.patch * processor.merge;
  const double width = image.width;
  const double height = image.height;
  if (std::max(width, height) / std::min(width, height) > 200) {
    refuse_input("", "expected a picture with one side at most 200 times the other, found {}x{}", image.width,
                 image.height);
  }
  double high = std::nearbyint(height / factor) * factor;
  double wide = std::nearbyint(width / factor) * factor;
  const auto most = static_cast<double>(processor.max_pixels);
  const auto least = static_cast<double>(processor.min_pixels);
  if (high * wide > most) {
    const double beta = std::sqrt(height * width / most);
    high = std::max(factor, std::floor(height / beta / factor) * factor);
    wide = std::max(factor, std::floor(width / beta / factor) * factor);
  } else if (high * wide < least) {
    const double beta = std::sqrt(least / (height * width));
    high = std::ceil(height * beta / factor) * factor;
    wide = std::ceil(width * beta / factor) * factor;
  }
  if (!(high >= 1 && wide >= 1 && high * wide <= static_cast<double>(kMaxPixels))) {
    refuse_input("",
                 "expected sides that are multiples of {} pixels, with at most {} pixels in all, found "
                 "{}x{} for {}x{}",
                 factor, kMaxPixels, wide, high, image.width, image.height);
  }
  return {static_cast<std::int32_t>(wide), static_cast<std::int32_t>(high)};
}

/// Returns the columns and rows of a picture's tiles (get_optimal_tiled_canvas): of grids with equally near
/// aspect ratios, the one with more tiles, unless it has more than twice the picture's area.
ImageSize internvl_canvas(ImageSize image, const InternvlProcessor& processor) {
  const double aspect = static_cast<double>(image.width) / image.height;
  const double area = static_cast<double>(image.width) * image.height;
  ImageSize best = {1, 1};
  double best_difference = std::numeric_limits<double>::infinity();
  for (std::int32_t tiles = processor.min_tiles; tiles <= processor.max_tiles; ++tiles) {
    for (std::int32_t columns = 1; columns <= tiles; ++columns) {
      if (tiles % columns != 0) continue;
      const std::int32_t rows = tiles / columns;
      const double difference = std::abs(aspect - static_cast<double>(columns) / rows);
      const bool is_covered = area > 0.5 * processor.tile * processor.tile * columns * rows;
      if (difference < best_difference || (difference == best_difference && is_covered)) {
        best = {columns, rows};
        best_difference = difference;
      }
    }
  }
  return best;
}

/// Returns Python's int(round(x, 7)).
std::int64_t whole_of(double x) {
  return static_cast<std::int64_t>(std::nearbyint(x * 1e7) / 1e7);
}

/// Returns Python's int(a // b).
std::int64_t floor_divide(std::int64_t a, double b) {
  const auto value = static_cast<double>(a);
  return std::llround((value - std::fmod(value, b)) / b);
}

}  // namespace

std::vector<ImageSize> LlavaProcessor::default_pinpoints() {
  std::vector<ImageSize> all;
  for (std::int32_t rows = 1; rows <= 6; ++rows) {
    for (std::int32_t columns = 1; columns <= 6; ++columns) all.push_back({384 * columns, 384 * rows});
  }
  return all;
}

ImageSize llava_pinpoint(ImageSize image, const LlavaProcessor& processor) {
  const std::int64_t pixels = std::int64_t{image.width} * image.height;
  ImageSize best;
  std::int64_t most = 0;
  std::int64_t least_waste = std::numeric_limits<std::int64_t>::max();
  for (const ImageSize& pinpoint : processor.pinpoints) {
    const double scale = std::min(static_cast<double>(pinpoint.width) / image.width,
                                  static_cast<double>(pinpoint.height) / image.height);
    const auto width = static_cast<std::int64_t>(image.width * scale);
    const auto height = static_cast<std::int64_t>(image.height * scale);
    const std::int64_t effective = std::min(width * height, pixels);
    const std::int64_t waste = std::int64_t{pinpoint.width} * pinpoint.height - effective;
    if (effective > most || (effective == most && waste < least_waste)) {
      best = pinpoint;
      most = effective;
      least_waste = waste;
    }
  }
  if (best.width == 0)
    refuse_input("", "expected a pinpoint that fits a picture of {}x{}, found none", image.width,
                 image.height);
  return best;
}

Tiles clip_tile(const RgbImage& image, const ClipProcessor& processor) {
  if (!processor.pads) return center_tile(image, processor);
  const std::int32_t side = std::max(image.size.width, image.size.height);
  return center_tile(in_the_middle(image, {side, side}, mean_color(processor.scale)), processor);
}

void require_clip_size(ImageSize image, const ClipProcessor& processor) {
  if (processor.pads) require_llava_square(image);
  const ImageSize size = clip_size(image, processor);
  if (std::int64_t{size.width} * size.height > kMaxPixels) {
    refuse_input(
        "",
        "expected a picture with at most {} pixels after its short side is resized to {}, found {}x{} "
        "for {}x{}",
        kMaxPixels, processor.tile, size.width, size.height, image.width, image.height);
  }
}

LlavaGrid llava_shown(ImageSize image, ImageSize pinpoint, std::int64_t tile, std::int64_t side,
                      std::int64_t most_tiles) {
  LlavaGrid grid;
  grid.tile_rows = pinpoint.height / tile;
  grid.tile_columns = pinpoint.width / tile;
  grid.rows = grid.tile_rows * side;
  grid.columns = grid.tile_columns * side;
  const auto rows = static_cast<double>(grid.rows);
  const auto columns = static_cast<double>(grid.columns);
  const auto width = static_cast<double>(image.width);
  const auto height = static_cast<double>(image.height);
  if (width / height > columns / rows) {
    grid.top = (grid.rows - whole_of(height * (columns / width))) / 2;
  } else {
    grid.left = (grid.columns - whole_of(width * (rows / height))) / 2;
  }
  grid.rows -= 2 * grid.top;
  grid.columns -= 2 * grid.left;
  grid.shown_rows = grid.rows;
  grid.shown_columns = grid.columns;
  if (most_tiles == 0) return grid;
  const double ratio = std::sqrt(static_cast<double>(grid.rows * grid.columns) /
                                 static_cast<double>(most_tiles * side * side));
  if (ratio > 1.1) {
    grid.shown_rows = floor_divide(grid.rows, ratio);
    grid.shown_columns = floor_divide(grid.columns, ratio);
  }
  return grid;
}

std::int64_t llava_tile_count(ImageSize image, const LlavaProcessor& processor) {
  const ImageSize pinpoint = llava_pinpoint(image, processor);
  return 1 + std::int64_t{pinpoint.width / processor.tile} * (pinpoint.height / processor.tile);
}

Tiles llava_tiles(const RgbImage& image, const LlavaProcessor& processor) {
  const ImageSize pinpoint = llava_pinpoint(image.size, processor);
  const ScaledBytes floats = scaled_bytes(processor.scale);
  Tiles tiles = empty_tiles(llava_tile_count(image.size, processor), processor.tile);
  append_grid(tiles, resize_bicubic(image, {processor.tile, processor.tile}), floats);
  const RgbImage resized = resize_bicubic(image, fitted(image.size, pinpoint));
  append_grid(tiles, in_the_middle(resized, pinpoint, {0, 0, 0}), floats);
  return tiles;
}

void require_llava_square(ImageSize image) {
  const std::int64_t side = std::max(image.width, image.height);
  if (side * side > kMaxPixels) {
    refuse_input("", "expected a picture that has at most {} pixels when padded to a square, found {}x{}",
                 kMaxPixels, image.width, image.height);
  }
}

Tiles llava_tile_of_several(const RgbImage& image, const LlavaProcessor& processor) {
  require_llava_square(image.size);
  const std::int32_t side = std::max(image.size.width, image.size.height);
  Tiles tiles = empty_tiles(1, processor.tile);
  append_grid(tiles,
              resize_bicubic(in_the_middle(image, {side, side}, mean_color(processor.scale)),
                             {processor.tile, processor.tile}),
              scaled_bytes(processor.scale));
  return tiles;
}

Tiles llava_frame_tile(const RgbImage& frame, const LlavaProcessor& processor) {
  Tiles tiles = empty_tiles(1, processor.tile);
  append_grid(tiles, resize_frame(frame, {processor.tile, processor.tile}), scaled_bytes(processor.scale));
  return tiles;
}

QwenGrid qwen_grid(ImageSize image, const QwenProcessor& processor, std::int64_t frames) {
  const ImageSize size = smart_size(image, processor);
  return {(frames + processor.temporal_patch - 1) / processor.temporal_patch, size.height / processor.patch,
          size.width / processor.patch};
}

Patches qwen_patches(std::span<const RgbImage> frames, const QwenProcessor& processor) {
  if (frames.empty()) refuse_input("", "expected a picture or the frames of a video, found none");
  for (const RgbImage& frame : frames) {
    if (frame.size != frames.front().size) {
      refuse_input("", "expected frames of one size, found {}x{} and {}x{}", frame.size.width,
                   frame.size.height, frames.front().size.width, frames.front().size.height);
    }
  }
  const ImageSize size = smart_size(frames.front().size, processor);
  const ScaledBytes floats = scaled_bytes(processor.scale);
  const std::int64_t patch = processor.patch;
  const std::int64_t merge = processor.merge;
  const std::int64_t depth = processor.temporal_patch;
  const std::int64_t values = 3 * depth * patch * patch;
  Patches out;
  out.grid = qwen_grid(frames.front().size, processor, static_cast<std::int64_t>(frames.size()));
  out.rows.resize(static_cast<std::size_t>(out.grid.patches() * values));
  for (std::int64_t t = 0; t < out.grid.frames * depth; ++t) {
    const auto frame = std::min(static_cast<std::size_t>(t), frames.size() - 1);
    const RgbImage image = resize_bicubic(frames[frame], size);
    for (std::int64_t y = 0; y < out.grid.rows; ++y) {
      for (std::int64_t x = 0; x < out.grid.columns; ++x) {
        const std::int64_t block = (y / merge) * (out.grid.columns / merge) + x / merge;
        const std::int64_t row = t / depth * out.grid.rows * out.grid.columns + block * merge * merge +
                                 y % merge * merge + x % merge;
        for (std::int64_t c = 0; c < 3; ++c) {
          const auto& channel = floats[static_cast<std::size_t>(c)];
          float* to = out.rows.data() + row * values + (c * depth + t % depth) * patch * patch;
          for (std::int64_t py = 0; py < patch; ++py) {
            const std::uint8_t* from = image.pixels.data() + pixel_at(image, y * patch + py, x * patch) + c;
            for (std::int64_t px = 0; px < patch; ++px) *to++ = channel[from[3 * px]];
          }
        }
      }
    }
  }
  return out;
}

std::int64_t internvl_tile_count(ImageSize image, const InternvlProcessor& processor) {
  if (processor.max_tiles == 1) return 1;
  const ImageSize canvas = internvl_canvas(image, processor);
  const std::int64_t tiles = std::int64_t{canvas.width} * canvas.height;
  return tiles == 1 ? 1 : tiles + 1;
}

Tiles internvl_tiles(const RgbImage& image, const InternvlProcessor& processor) {
  const ScaledBytes floats = scaled_bytes(processor.scale);
  const ImageSize canvas = processor.max_tiles > 1 ? internvl_canvas(image.size, processor) : ImageSize{1, 1};
  const std::int32_t side = processor.tile;
  Tiles tiles = empty_tiles(internvl_tile_count(image.size, processor), side);
  append_grid(tiles, resize_bicubic(image, {side * canvas.width, side * canvas.height}), floats);
  if (tiles.count > 1) append_grid(tiles, resize_bicubic(image, {side, side}), floats);
  return tiles;
}

}  // namespace dflop
