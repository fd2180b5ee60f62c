// These are the internal JPEG, PNG and WebP readers of decode_image(), and the helpers that they share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "traces/media/image.hpp"

namespace dflop {

/// A PictureFile holds the bytes of a picture file, its name for errors, the max number of pixels, and the
/// use of its EXIF orientation.
struct PictureFile {
  std::string_view bytes;
  const std::string& name;
  std::int64_t most_pixels = kMaxPixels;
  ExifRule exif = ExifRule::upright;
};

RgbImage decode_jpeg(const PictureFile& file);
ImageSize jpeg_size(const PictureFile& file);
RgbImage decode_png(const PictureFile& file);
ImageSize png_size(const PictureFile& file);
RgbImage decode_webp(const PictureFile& file);
ImageSize webp_size(const PictureFile& file);

/// Returns a size read from a header. @throws Error (input) if the size exceeds the file's max number of
/// pixels.
ImageSize checked_size(const PictureFile& file, std::uint64_t width, std::uint64_t height);

/// Returns the place for an error: "file: offset 17".
std::string place_at(const PictureFile& file, std::size_t offset);

}  // namespace dflop
