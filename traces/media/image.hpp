// This file decodes pictures to the same bytes as Pillow's Image.open(file).convert("RGB"). Like
// PIL.Image.open, it ignores the EXIF orientation (transformers' load_image applies it).
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

/// This is the default max number of pixels of a picture. Pillow has the same limit, against pictures made to
/// exhaust memory.
inline constexpr std::int64_t kMaxPixels = 178'956'970;

/// Decodes a JPEG or PNG file, recognized by its first bytes. Gray becomes three equal channels, CMYK and
/// YCCK are read in Adobe's form (inverted) and multiplied out, alpha is dropped, and 16 bits a channel lose
/// their lower 8. Gray of 16 bits is clipped at 255, as in Pillow. `file` is named in errors.
/// @throws Error (input) for other formats, more than `most_pixels`, kinds of JPEG that Pillow rejects (12
/// bits, lossless) or nobody writes (arithmetic coding, over 100 scans), and damage: a truncated file, a
/// wrong checksum, invalid codes. The error's offset is the reader's position when it found the problem.
/// Memory is bounded by the file's bytes: no file decodes to more than its coding could hold.
RgbImage decode_image(std::string_view bytes, const std::string& file, std::int64_t most_pixels = kMaxPixels);

/// Returns the size that decode_image() gives, from only the headers: `bytes` may end where the pixels begin.
/// @throws the errors (input) of decode_image() that the headers reveal.
ImageSize image_size(std::string_view bytes, const std::string& file, std::int64_t most_pixels = kMaxPixels);

}  // namespace dflop
