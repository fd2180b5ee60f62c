// This file resizes pictures byte for byte like Pillow's Image.resize(), and frames of videos like
// torchvision.
#pragma once

#include "traces/media/image.hpp"

namespace dflop {

/// Resizes a picture with the bicubic filter (a = -0.5), which is stretched when the picture shrinks, in two
/// passes: along rows and then along columns, or the other way round if Pillow 13 does so. Weights have 22
/// fractional bits, and values between the passes have 8 bits (Pillow, Resample.c). A pass that changes
/// nothing is skipped. The result follows transformers' PIL processors.
/// @pre both sides of `image` and `size` are at least 1
/// @throws Error (input) if the result, or the picture between the passes, has more than kMaxPixels
RgbImage resize_bicubic(const RgbImage& image, ImageSize size);

/// Resizes a frame of a video with the same filter, always along rows first. Weights fill 16 bits:
/// transformers and qwen-vl-utils resize frames with torchvision's antialiased bicubic filter, whose bytes
/// differ from Pillow's by up to 2 where colors change smoothly.
/// @pre both sides of `frame` and `size` are at least 1
/// @throws what resize_bicubic() throws
RgbImage resize_frame(const RgbImage& frame, ImageSize size);

}  // namespace dflop
