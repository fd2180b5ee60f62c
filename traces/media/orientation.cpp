#include "traces/media/orientation.hpp"

#include <cstddef>
#include <utility>

namespace dflop {
namespace {

constexpr unsigned kOrientationTag = 0x0112;
constexpr std::size_t kEntryBytes = 12;

/// A TiffReader reads numbers at offsets in a TIFF file; beyond its end they are 0.
struct TiffReader {
  std::string_view bytes;
  bool is_little = false;

  std::uint32_t number(std::size_t at, std::size_t count) const {
    if (at > bytes.size() || bytes.size() - at < count) return 0;
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t byte = is_little ? count - 1 - i : i;
      value = value << 8 | static_cast<unsigned char>(bytes[at + byte]);
    }
    return value;
  }
};

}  // namespace

ImageSize Orientation::turned(ImageSize stored) const {
  if (swaps_sides()) std::swap(stored.width, stored.height);
  return stored;
}

RgbImage Orientation::turned(RgbImage stored) const {
  if (value_ == 1) return stored;
  const bool mirrors_x = value_ == 2 || value_ == 3 || value_ == 7 || value_ == 8;
  const bool mirrors_y = value_ == 3 || value_ == 4 || value_ == 6 || value_ == 7;
  RgbImage upright{turned(stored.size), std::vector<std::uint8_t>(stored.pixels.size())};
  std::uint8_t* to = upright.pixels.data();
  for (std::int32_t y = 0; y < upright.size.height; ++y) {
    for (std::int32_t x = 0; x < upright.size.width; ++x, to += 3) {
      std::int32_t from_x = swaps_sides() ? y : x;
      std::int32_t from_y = swaps_sides() ? x : y;
      if (mirrors_x) from_x = stored.size.width - 1 - from_x;
      if (mirrors_y) from_y = stored.size.height - 1 - from_y;
      const auto pixel = std::size_t(from_y) * std::size_t(stored.size.width) + std::size_t(from_x);
      for (std::size_t c = 0; c < 3; ++c) to[c] = stored.pixels[3 * pixel + c];
    }
  }
  return upright;
}

std::optional<Orientation> exif_orientation(std::string_view exif) {
  constexpr unsigned kByte = 1;
  constexpr unsigned kShort = 3;
  constexpr unsigned kLong = 4;
  if (constexpr std::string_view kName("Exif\0\0", 6); exif.starts_with(kName))
    exif.remove_prefix(kName.size());
  const bool is_little = exif.starts_with(std::string_view("II*\0", 4));
  if (!is_little && !exif.starts_with(std::string_view("MM\0*", 4))) return std::nullopt;
  const TiffReader tiff{exif, is_little};
  const std::size_t directory = tiff.number(4, 4);
  const std::size_t entries = tiff.number(directory, 2);
  for (std::size_t e = 0; e < entries; ++e) {
    const std::size_t entry = directory + 2 + e * kEntryBytes;
    if (tiff.number(entry, 2) != kOrientationTag) continue;
    const unsigned type = tiff.number(entry + 2, 2);
    const std::size_t bytes = type == kByte ? 1 : type == kShort ? 2 : type == kLong ? 4 : 0;
    return Orientation(tiff.number(entry + 8, bytes));
  }
  return std::nullopt;
}

Orientation xmp_orientation(std::string_view xmp) {
  constexpr std::string_view kTag = "tiff:Orientation";
  for (std::size_t at = 0; (at = xmp.find(kTag, at)) != std::string_view::npos; ++at) {
    std::string_view rest = xmp.substr(at + kTag.size());
    if (rest.starts_with("=\"")) {
      rest.remove_prefix(2);
    } else if (rest.starts_with('>')) {
      rest.remove_prefix(1);
    } else {
      continue;
    }
    if (!rest.empty() && rest[0] >= '0' && rest[0] <= '9')
      return Orientation(static_cast<unsigned>(rest[0] - '0'));
  }
  return {};
}

}  // namespace dflop
