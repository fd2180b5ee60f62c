// A timeline is drawn as a picture: one row per tp group, time to the right.
#pragma once

#include <string>
#include <vector>

#include "core/timeline.hpp"
#include "sim/analysis/critical_path.hpp"

namespace dflop {

/// Draws one traced iteration as an SVG. All pictures with the same `end` have the same time scale.
/// A critical path is drawn over it: what it runs over is outlined, the rest is pale, and lines are its
/// messages and collectives. Rows beyond 48 (128 with a path, whose own come first) are thinned out evenly,
/// which the picture says.
std::string timeline_svg(const Timeline& timeline, Nanoseconds end, const std::vector<PathLink>& path = {});

/// Draws the colours of timeline_svg() and what they stand for, as an SVG.
std::string timeline_legend_svg(bool with_path = false);

}  // namespace dflop
