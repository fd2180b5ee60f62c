// Pictures are decoded to the bytes that Pillow's Image.open(file).convert("RGB") gives. Nothing is turned by
// its EXIF orientation, as PIL.Image.open does not either (transformers' load_image does).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/sample.hpp"

namespace dflop {

/// An RgbImage has 8 bits a channel.
struct RgbImage {
  ImageSize size;
  std::vector<std::uint8_t> pixels;  ///< [height, width, 3]

  bool operator==(const RgbImage&) const = default;
};

/// A picture has at most so many pixels unless a caller says otherwise: beyond it Pillow, too, refuses a
/// picture as one that is made to fill the memory.
inline constexpr std::int64_t kMostPixels = 178'956'970;

/// Decodes a JPEG or PNG file, which its first bytes tell apart. Gray becomes three equal channels, CMYK and
/// YCCK are read as Adobe writes them (inverted) and multiplied out, alpha is dropped, 16 bits a channel lose
/// their lower 8. Gray of 16 bits is cut at 255, as Pillow does. `file` is named in errors.
/// @throws Error (input) for bytes of another kind, more than `most_pixels`, kinds of JPEG that Pillow does
/// not take (12 bits, lossless) or nobody writes (arithmetic coding, over 100 scans), and damage: a file that
/// ends early, a wrong checksum, codes that stand for nothing. The offset is that of the reader when it
/// noticed. Memory follows from the bytes: no file decodes to more than its coding could hold.
RgbImage decode_image(std::string_view bytes, const std::string& file,
                      std::int64_t most_pixels = kMostPixels);

/// Returns the size that decode_image() gives, from the headers alone: `bytes` may end where the pixels
/// begin.
/// @throws Error (input) as decode_image() does for what the headers tell.
ImageSize image_size(std::string_view bytes, const std::string& file, std::int64_t most_pixels = kMostPixels);

}  // namespace dflop
