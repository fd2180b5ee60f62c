// Pages and pictures: HTML, parts of SVG with time to the right, timelines of groups and memory of a rank.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/timeline.hpp"
#include "sim/analysis/critical_path.hpp"

namespace dflop {

/// Returns the text with <, >, &, ' and " as entities.
std::string html_escaped(std::string_view text);

/// Returns lines as a part of a page, which breaks long ones.
std::string html_lines(const std::vector<std::string>& lines);

/// Makes a page with style and title, which is also its first heading, around `body`. It refers to nothing
/// outside.
std::string html_page(std::string_view title, std::string_view body);

/// These are pixels. Pictures below each other with these have one time scale.
inline constexpr double kLabelWidth = 150;
inline constexpr double kPlotWidth = 1000;
inline constexpr double kAxisHeight = 22;

/// Returns the opening tag of a picture.
std::string svg_open(double width, double height);

/// Returns a line of text at a place; `anchor` is SVG's: start, middle or end.
std::string svg_text(double x, double y, std::string_view anchor, std::string_view text);

/// Draws grid lines from 0 to `height` and their times below.
std::string time_axis(Nanoseconds end, double height);

/// Returns a distance of 1, 2 or 5 times a power of ten that gives four to ten ticks from 0 to `range` > 0.
double tick_step(double range);

/// Returns the decimals that tell multiples of `step` apart.
int tick_decimals(double step);

/// Returns pixels a nanosecond, where the picture ends at `end`.
double time_scale(Nanoseconds end);

/// Draws one traced iteration as an SVG, one row per tp group. All pictures with the same `end` have the same
/// time scale. A critical path is drawn over it: what it runs over is outlined, the rest is pale, and lines
/// are its messages and collectives. Rows beyond 48 (128 with a path, whose own come first) are thinned out
/// evenly, which the picture says.
std::string timeline_svg(const Timeline& timeline, Nanoseconds end, const std::vector<PathLink>& path = {});

/// Draws timeline_svg() under its legend, as a picture of its own.
std::string timeline_picture_svg(const Timeline& timeline);

/// Draws the colours of timeline_svg() and what they stand for, as an SVG.
std::string timeline_legend_svg(bool with_path = false);

/// Draws parameters, gradients, optimizer, activations and buffers of a group's ranks on top of each other,
/// with the time scale of timeline_svg(timeline, timeline.makespan); the peak is marked, and `limit` is a
/// line. `timeline` has its memory points. Times nearer than half a pixel are drawn as the fullest of them.
std::string memory_svg(const Timeline& timeline, std::size_t group, std::optional<Bytes> limit);

}  // namespace dflop
