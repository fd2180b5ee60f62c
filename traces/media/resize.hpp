// Pictures are resized as Pillow's Image.resize() does, to the byte.
#pragma once

#include "traces/media/image.hpp"

namespace dflop {

/// Resizes a picture with the bicubic filter (a = -0.5), which is stretched where the picture shrinks, in two
/// passes: along rows and then along columns, or the other way round where Pillow 13 does so; weights of 22
/// bits behind the point, 8 bits between the passes (Pillow, Resample.c). A pass that changes nothing is left
/// out. torchvision's antialiased bicubic of bytes differs by up to 2: the processors' PIL forms, which this
/// follows, do not use it.
/// @pre both sides of `image` and `size` are at least 1
/// @throws Error (input) where the result, or what is between the passes, has more than kMostPixels
RgbImage resize_bicubic(const RgbImage& image, ImageSize size);

}  // namespace dflop
