#include <webp/decode.h>

#include <cstddef>
#include <optional>
#include <utility>

#include "core/refuse.hpp"
#include "traces/media/codecs.hpp"
#include "traces/media/orientation.hpp"

namespace dflop {
namespace {

constexpr std::size_t kRiffHeader = 12;
constexpr std::size_t kChunkHeader = 8;

const std::uint8_t* bytes_of(const PictureFile& file) {
  return reinterpret_cast<const std::uint8_t*>(file.bytes.data());
}

/// Returns what the headers tell; for an animation, the size is its canvas.
WebPBitstreamFeatures features_of(const PictureFile& file) {
  WebPBitstreamFeatures features;
  const VP8StatusCode status = WebPGetFeatures(bytes_of(file), file.bytes.size(), &features);
  if (status == VP8_STATUS_NOT_ENOUGH_DATA)
    refuse_input(place_at(file, file.bytes.size()), "expected a whole WebP file, found the end of the file");
  if (status != VP8_STATUS_OK) refuse_input(file.name, "expected a whole WebP file, found a damaged one");
  return features;
}

bool is_animation(const PictureFile& file) {
  return features_of(file).has_animation != 0;
}

ImageSize stored_size(const PictureFile& file) {
  const WebPBitstreamFeatures features = features_of(file);
  return checked_size(file, static_cast<std::uint64_t>(features.width),
                      static_cast<std::uint64_t>(features.height));
}

/// Returns the content of a chunk, in a file that may be cut off; nullopt if the chunk is not there.
std::optional<std::string_view> find_chunk(std::string_view bytes, std::string_view name) {
  for (std::size_t at = kRiffHeader; at <= bytes.size() && bytes.size() - at >= kChunkHeader;) {
    std::size_t size = 0;
    for (std::size_t i = 0; i < 4; ++i)
      size |= std::size_t{static_cast<unsigned char>(bytes[at + 4 + i])} << (8 * i);
    const std::string_view content = bytes.substr(at + kChunkHeader);
    if (bytes.substr(at, 4) == name)
      return content.size() < size ? std::nullopt : std::optional(content.substr(0, size));
    at += kChunkHeader + size + size % 2;
  }
  return std::nullopt;
}

/// Returns the orientation of a picture. Its EXIF data are behind its pixels.
/// @throws Error (input) if the file ends before them
Orientation orientation_of(const PictureFile& file) {
  if (file.exif == ExifRule::ignore) return {};
  constexpr unsigned kHasExif = 0x08;
  const std::optional<std::string_view> extended = find_chunk(file.bytes, "VP8X");
  if (!extended || extended->empty() || (static_cast<unsigned char>(extended->front()) & kHasExif) == 0)
    return {};
  const std::optional<std::string_view> exif = find_chunk(file.bytes, "EXIF");
  if (!exif)
    refuse_input(place_at(file, file.bytes.size()), "expected the chunk 'EXIF', found the end of the file");
  return exif_orientation(*exif).value_or(Orientation());
}

/// Returns the first frame of an animation on a black canvas, as Pillow does.
/// @param frame  the content of its chunk
RgbImage first_frame(const PictureFile& file, ImageSize canvas, std::string_view frame) {
  constexpr std::size_t kFrameHeader = 16;  // places and sizes, of 3 bytes each, and others
  const auto number = [&](std::size_t at) {
    std::size_t value = 0;
    for (std::size_t i = 0; i < 3; ++i)
      value |= std::size_t{static_cast<unsigned char>(frame[at + i])} << (8 * i);
    return value;
  };
  if (frame.size() <= kFrameHeader)
    refuse_input(file.name, "expected a whole WebP animation, found a damaged one");
  const std::size_t left = 2 * number(0);
  const std::size_t top = 2 * number(3);
  const std::size_t width = number(6) + 1;
  const std::size_t height = number(9) + 1;
  const auto canvas_width = static_cast<std::size_t>(canvas.width);
  const auto canvas_height = static_cast<std::size_t>(canvas.height);
  const std::string_view coded = frame.substr(kFrameHeader);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(coded.data());
  int found_width = 0;
  int found_height = 0;
  if (left + width > canvas_width || top + height > canvas_height ||
      WebPGetInfo(bytes, coded.size(), &found_width, &found_height) == 0 ||
      static_cast<std::size_t>(found_width) != width || static_cast<std::size_t>(found_height) != height)
    refuse_input(file.name, "expected a first frame inside {}x{}, found a damaged one", canvas.width,
                 canvas.height);
  RgbImage image{canvas, std::vector<std::uint8_t>(3 * canvas_width * canvas_height)};
  const std::size_t first = 3 * (top * canvas_width + left);
  if (WebPDecodeRGBInto(bytes, coded.size(), image.pixels.data() + first, image.pixels.size() - first,
                        3 * canvas.width) == nullptr)
    refuse_input(file.name, "expected a whole WebP animation, found a damaged one, or one that is cut short");
  return image;
}

}  // namespace

RgbImage decode_webp(const PictureFile& file) {
  const ImageSize size = stored_size(file);
  const Orientation orientation = orientation_of(file);
  if (is_animation(file)) {
    const std::optional<std::string_view> frame = find_chunk(file.bytes, "ANMF");
    if (!frame)
      refuse_input(file.name, "expected a whole WebP animation, found no frame, or one that is cut short");
    return orientation.turned(first_frame(file, size, *frame));
  }
  const auto width = static_cast<std::size_t>(size.width);
  RgbImage image{size, std::vector<std::uint8_t>(3 * width * static_cast<std::size_t>(size.height))};
  if (WebPDecodeRGBInto(bytes_of(file), file.bytes.size(), image.pixels.data(), image.pixels.size(),
                        3 * size.width) == nullptr)
    refuse_input(file.name, "expected a whole WebP file, found a damaged one, or one that is cut short");
  return orientation.turned(std::move(image));
}

ImageSize webp_size(const PictureFile& file) {
  const ImageSize size = stored_size(file);
  return orientation_of(file).turned(size);
}

}  // namespace dflop
