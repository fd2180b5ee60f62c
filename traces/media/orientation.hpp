// This file reads how a camera held a picture, and turns the picture upright, like Pillow's
// ImageOps.exif_transpose().
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "traces/media/image.hpp"

namespace dflop {

/// An Orientation is the value of EXIF's tag 0x0112: how stored rows and columns lie in the upright picture.
class Orientation {
 public:
  /// Upright, as values outside 1 to 8 count too.
  Orientation() = default;
  explicit Orientation(unsigned value) : value_(value >= 1 && value <= 8 ? value : 1) {}

  unsigned value() const { return value_; }
  /// Returns the size of the upright picture.
  ImageSize turned(ImageSize stored) const;
  /// Returns the upright picture.
  RgbImage turned(RgbImage stored) const;

 private:
  bool swaps_sides() const { return value_ >= 5; }

  unsigned value_ = 1;
};

/// Returns the orientation in EXIF data, which begin with "Exif" and two zeros or with their TIFF header;
/// nullopt if the data do not have the tag or are damaged.
std::optional<Orientation> exif_orientation(std::string_view exif);

/// Returns the orientation in XMP data, which Pillow reads if a picture's EXIF data have none; upright if
/// there is none.
Orientation xmp_orientation(std::string_view xmp);

}  // namespace dflop
