// Parts of pictures with time to the right.
#pragma once

#include <string>

#include "core/units.hpp"

namespace dflop {

/// Pixels. Pictures below each other with these have one time scale.
inline constexpr double kLabelWidth = 150;
inline constexpr double kPlotWidth = 1000;
inline constexpr double kAxisHeight = 22;

/// The opening tag.
std::string svg_open(double width, double height);

/// Grid lines from 0 to `height` and their times below.
std::string time_axis(Nanoseconds end, double height);

/// A distance of 1, 2 or 5 times a power of ten that gives four to ten ticks from 0 to `range` > 0.
double tick_step(double range);

/// Decimals that tell multiples of `step` apart.
int tick_decimals(double step);

/// Pixels a nanosecond.
double time_scale(Nanoseconds end);

}  // namespace dflop
