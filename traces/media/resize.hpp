// This file resizes pictures byte for byte like Pillow's Image.resize().
#pragma once

#include "traces/media/image.hpp"

namespace dflop {

/// Resizes a picture with the bicubic filter (a = -0.5), which is stretched when the picture shrinks, in two
/// passes: along rows and then along columns, or the other way round if Pillow 13 does so. Weights have 22
/// fractional bits, and values between the passes have 8 bits (Pillow, Resample.c). A pass that changes
/// nothing is skipped. The result follows transformers' PIL processors. They do not use torchvision's
/// antialiased bicubic filter, whose bytes differ by up to 2.
/// @pre both sides of `image` and `size` are at least 1
/// @throws Error (input) if the result, or the picture between the passes, has more than kMaxPixels
RgbImage resize_bicubic(const RgbImage& image, ImageSize size);

}  // namespace dflop
