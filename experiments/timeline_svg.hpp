// A timeline as a picture: one row per tp group, time to the right.
#pragma once

#include <string>

#include "core/timeline.hpp"

namespace dflop {

/// An SVG of one traced iteration. All pictures with the same `end` have the same time scale.
/// Rows beyond 48 are thinned out evenly, which the picture says.
std::string timeline_svg(const Timeline& timeline, Nanoseconds end);

/// The colours of timeline_svg() and what they stand for, as an SVG.
std::string timeline_legend_svg();

}  // namespace dflop
