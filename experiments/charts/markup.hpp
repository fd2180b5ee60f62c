// Pages and pictures are made of these parts: HTML around them, and SVG with time to the right.
#pragma once

#include <string>
#include <string_view>

#include "core/units.hpp"

namespace dflop {

/// Returns the text with <, >, &, ' and " as entities.
std::string html_escaped(std::string_view text);

/// Makes a page with style and title, which is also its first heading, around `body`. It refers to nothing
/// outside.
std::string html_page(std::string_view title, std::string_view body);

/// These are pixels. Pictures below each other with these have one time scale.
inline constexpr double kLabelWidth = 150;
inline constexpr double kPlotWidth = 1000;
inline constexpr double kAxisHeight = 22;

/// Returns the opening tag of a picture.
std::string svg_open(double width, double height);

/// Draws grid lines from 0 to `height` and their times below.
std::string time_axis(Nanoseconds end, double height);

/// Returns a distance of 1, 2 or 5 times a power of ten that gives four to ten ticks from 0 to `range` > 0.
double tick_step(double range);

/// Returns the decimals that tell multiples of `step` apart.
int tick_decimals(double step);

/// Returns pixels a nanosecond, where the picture ends at `end`.
double time_scale(Nanoseconds end);

}  // namespace dflop
