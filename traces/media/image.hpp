// This file decodes pictures to the same bytes as transformers' load_image(), which is Pillow's
// ImageOps.exif_transpose(Image.open(file)).convert("RGB").
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/names.hpp"
#include "core/sample.hpp"

namespace dflop {

/// An RgbImage has 8 bits a channel.
struct RgbImage {
  ImageSize size;
  std::vector<std::uint8_t> pixels;  ///< [height, width, 3]

  bool operator==(const RgbImage&) const = default;
};

/// This is the default max number of pixels of a picture. Pillow has the same limit, as a protection against
/// pictures that are made to exhaust memory.
inline constexpr std::int64_t kMaxPixels = 178'956'970;

/// An ExifRule says whether pictures are turned upright by their EXIF orientation, as transformers'
/// load_image() does, or decoded as stored, as Pillow's Image.open() does.
enum class ExifRule : std::uint8_t { upright, ignore };

template <>
inline constexpr NameTable<ExifRule, 2> kNames<ExifRule> = {
    {{ExifRule::upright, "upright"}, {ExifRule::ignore, "ignore"}}};

/// Returns whether `bytes` begin like a file of a format that decode_image() reads.
bool begins_as_picture(std::string_view bytes);

/// Decodes a JPEG, PNG or WebP file, recognized by its first bytes, and turns it upright by its EXIF
/// orientation unless `exif` says otherwise. Gray becomes three equal channels. CMYK and YCCK are read in
/// Adobe's inverted form and converted to RGB by multiplication. Alpha is dropped. An animated WebP file
/// gives its first frame, on black. Channels of 16 bits lose their lower 8 bits, but 16-bit gray is clipped
/// at 255, as in Pillow. `file` is named in errors.
/// @throws Error (input) for other formats, more than `most_pixels`, kinds of JPEG that Pillow rejects (12
/// bits, lossless) or nobody writes (arithmetic coding, over 100 scans), and damage: a truncated file, a
/// wrong checksum, invalid codes. The error's offset is the reader's position when it found the problem. The
/// size of a JPEG or PNG file bounds the memory: neither decodes to more pixels than its coding could hold. A
/// WebP file of one color may be tiny, so only `most_pixels` bounds its memory.
RgbImage decode_image(std::string_view bytes, const std::string& file, std::int64_t most_pixels = kMaxPixels,
                      ExifRule exif = ExifRule::upright);

/// Returns the size of the picture that decode_image() gives. Reads only the headers, so `bytes` may end
/// where the pixels begin, except in WebP and PNG files whose EXIF data are behind the pixels. For PNG files,
/// png_headers() has these.
/// @throws Error (input) for those errors of decode_image() that the headers show.
ImageSize image_size(std::string_view bytes, const std::string& file, std::int64_t most_pixels = kMaxPixels,
                     ExifRule exif = ExifRule::upright);

/// Copies bytes of a file: read(offset, to, count).
using ReadBytes = std::function<void(std::uint64_t, char*, std::size_t)>;

bool begins_as_png(std::string_view bytes);
/// Returns a PNG file of this size without its pixels, for image_size(). Reads only the headers of the chunks
/// that have pixels, and drops other chunks of more than 1 MiB. Chunks after a cut-off one are missing.
std::string png_headers(std::uint64_t size, const ReadBytes& read);

}  // namespace dflop
