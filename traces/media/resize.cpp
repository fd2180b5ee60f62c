#include "traces/media/resize.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "core/refuse.hpp"

namespace dflop {
namespace {

/// Weights have at most this many fractional bits: with 8 bits of the value and two for overshoot they
/// fill 32.
constexpr int kWeightBits = 32 - 8 - 2;
/// torch stores weights in 16 bits.
constexpr int kTorchWeight = 1 << 15;

/// The filter's radius.
constexpr double kReach = 2.0;

double cubic(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * kA;
  return 0.0;
}

/// A Tap says which input values contribute to one value of the result.
struct Tap {
  std::size_t first;
  std::size_t count;
  std::size_t weights;  ///< offset in Taps::weights
};

struct Taps {
  std::vector<Tap> taps;  ///< one for each output value
  std::vector<std::int32_t> weights;
  int bits = kWeightBits;  ///< fractional, of `weights`

  std::int32_t half() const { return std::int32_t{1} << (bits - 1); }
  std::uint8_t to_byte(std::int32_t sum) const {
    return static_cast<std::uint8_t>(std::clamp(sum >> bits, 0, 255));
  }
};

/// Whose bytes a resized picture has. The two differ in the weights' fractional bits.
enum class Like { pillow, torch };

/// Returns the most fractional bits with which torch's largest weight fits (UpSampleKernel.cpp,
/// compute_index_ranges_int16_weights).
int torch_bits(double largest) {
  int bits = 0;
  while (bits < kWeightBits && static_cast<int>(0.5 + largest * (1 << (bits + 1))) < kTorchWeight) ++bits;
  return bits;
}

/// Returns the taps that resize a side from `from` values to `to`.
Taps make_taps(std::int32_t from, std::int32_t to, Like like) {
  const double scale = static_cast<double>(from) / to;
  const double stretch = std::max(scale, 1.0);
  const double reach = kReach * stretch;
  Taps all;
  all.taps.reserve(static_cast<std::size_t>(to));
  std::vector<double> weights;  // of all taps
  for (std::int32_t i = 0; i < to; ++i) {
    const double center = (i + 0.5) * scale;
    const int begin = std::max(static_cast<int>(center - reach + 0.5), 0);
    const int end = std::min(static_cast<int>(center + reach + 0.5), static_cast<int>(from));
    const std::size_t first = weights.size();
    double sum = 0;
    for (int x = begin; x < end; ++x) {
      weights.push_back(cubic((x - center + 0.5) * (1.0 / stretch)));
      sum += weights.back();
    }
    all.taps.push_back({static_cast<std::size_t>(begin), weights.size() - first, first});
    for (std::size_t k = first; sum != 0.0 && k < weights.size(); ++k) weights[k] /= sum;
  }
  if (like == Like::torch) all.bits = torch_bits(*std::ranges::max_element(weights));
  for (const double weight : weights)
    all.weights.push_back(static_cast<std::int32_t>((weight < 0 ? -0.5 : 0.5) + weight * (1 << all.bits)));
  return all;
}

/// Resizes a row of pixels to another width.
void resize_row(const std::uint8_t* in, const Taps& taps, std::uint8_t* out) {
  for (const Tap& tap : taps.taps) {
    const std::uint8_t* pixel = in + 3 * tap.first;
    const std::int32_t* weight = taps.weights.data() + tap.weights;
    std::int32_t red = taps.half();
    std::int32_t green = taps.half();
    std::int32_t blue = taps.half();
    for (std::size_t k = 0; k < tap.count; ++k, pixel += 3) {
      red += pixel[0] * weight[k];
      green += pixel[1] * weight[k];
      blue += pixel[2] * weight[k];
    }
    *out++ = taps.to_byte(red);
    *out++ = taps.to_byte(green);
    *out++ = taps.to_byte(blue);
  }
}

RgbImage resize_width(const RgbImage& image, std::int32_t width, Like like) {
  if (image.size.width == width) return image;
  const Taps taps = make_taps(image.size.width, width, like);
  const std::size_t in_row = 3 * static_cast<std::size_t>(image.size.width);
  const std::size_t out_row = 3 * static_cast<std::size_t>(width);
  const auto height = static_cast<std::size_t>(image.size.height);
  RgbImage out{{width, image.size.height}, std::vector<std::uint8_t>(out_row * height)};
  for (std::size_t y = 0; y < height; ++y) {
    resize_row(image.pixels.data() + y * in_row, taps, out.pixels.data() + y * out_row);
  }
  return out;
}

/// Resizes the height by summing whole rows, so that the inner loop runs over adjacent values.
RgbImage resize_height(const RgbImage& image, std::int32_t height, Like like) {
  if (image.size.height == height) return image;
  const Taps taps = make_taps(image.size.height, height, like);
  const std::size_t row = 3 * static_cast<std::size_t>(image.size.width);
  RgbImage out{{image.size.width, height}, std::vector<std::uint8_t>(row * static_cast<std::size_t>(height))};
  std::vector<std::int32_t> sums(row);
  std::uint8_t* to = out.pixels.data();
  for (const Tap& tap : taps.taps) {
    std::fill(sums.begin(), sums.end(), taps.half());
    for (std::size_t k = 0; k < tap.count; ++k) {
      const std::uint8_t* from = image.pixels.data() + (tap.first + k) * row;
      const std::int32_t weight = taps.weights[tap.weights + k];
      for (std::size_t i = 0; i < row; ++i) sums[i] += from[i] * weight;
    }
    for (std::size_t i = 0; i < row; ++i) to[i] = taps.to_byte(sums[i]);
    to += row;
  }
  return out;
}

/// Tells whether Pillow 13 resizes rows before columns: if it drops enough rows to make the pass over
/// columns cheaper. Older versions always begin with columns. The rule was found by comparing with
/// Pillow 13.0.0 on 6,000 random pairs of sizes.
bool rows_come_first(ImageSize from, ImageSize to) {
  const std::int64_t dropped_rows = std::int64_t{from.height} - to.height;
  const std::int64_t dropped_columns = std::int64_t{from.width} - to.width;
  return dropped_rows > 0 && 2 * dropped_columns < dropped_rows;
}

/// @throws Error (input) for a result, or a picture between the passes, of more than kMaxPixels
RgbImage resize(const RgbImage& image, ImageSize size, Like like, bool is_rows_first) {
  const std::int64_t between = is_rows_first ? std::int64_t{image.size.width} * size.height
                                             : std::int64_t{size.width} * image.size.height;
  if (std::max(between, std::int64_t{size.width} * size.height) > kMaxPixels) {
    refuse_input("",
                 "expected a picture whose resizing takes at most {} intermediate pixels, found {}x{} "
                 "to {}x{}",
                 kMaxPixels, image.size.width, image.size.height, size.width, size.height);
  }
  if (is_rows_first) return resize_width(resize_height(image, size.height, like), size.width, like);
  return resize_height(resize_width(image, size.width, like), size.height, like);
}

}  // namespace

RgbImage resize_bicubic(const RgbImage& image, ImageSize size) {
  return resize(image, size, Like::pillow, rows_come_first(image.size, size));
}

RgbImage resize_frame(const RgbImage& frame, ImageSize size) {
  return resize(frame, size, Like::torch, false);
}

}  // namespace dflop
