// This file draws HTML pages and SVG pictures: timelines of groups, and the memory of a rank over time.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/timeline.hpp"
#include "sim/analysis/critical_path.hpp"

namespace dflop {

/// Escapes <, >, &, ' and " as HTML entities.
std::string html_escaped(std::string_view text);

/// Returns the lines as HTML for a page; long lines wrap.
std::string html_lines(const std::vector<std::string>& lines);

/// Makes a page around `body`. The title is also the page's first heading. The page loads nothing external.
std::string html_page(std::string_view title, std::string_view body);

/// Sizes in pixels. Pictures that use these sizes have the same time scale and can be stacked.
inline constexpr double kLabelWidth = 150;
inline constexpr double kPlotWidth = 1000;
inline constexpr double kAxisHeight = 22;

/// Returns the opening tag of an SVG picture.
std::string svg_open(double width, double height);

/// Returns SVG text at a position; `anchor` is an SVG text-anchor: start, middle or end.
std::string svg_text(double x, double y, std::string_view anchor, std::string_view text);

/// Draws the grid lines of a time axis from 0 to `end`, with height `height`, and their times below.
std::string time_axis(Nanoseconds end, double height);

/// Returns a tick distance of 1, 2 or 5 times a power of ten that gives four to ten ticks from 0 to `range` >
/// 0.
double tick_step(double range);

/// Returns the number of decimals needed to tell multiples of `step` apart.
int tick_decimals(double step);

/// Returns the pixels per nanosecond of a picture that shows the time from 0 to `end`.
double time_scale(Nanoseconds end);

/// Draws one traced iteration as an SVG, one row per tp group. All pictures with the same `end` have the same
/// time scale. A critical path is drawn on top: its instructions have outlines, all others are pale, and
/// lines show its messages and collectives. If there are more than 48 rows (128 with a path), the picture
/// shows evenly spaced rows, preferably rows on the path, and says so.
std::string timeline_svg(const Timeline& timeline, Nanoseconds end, const std::vector<PathLink>& path = {});

/// Draws a separate picture of a timeline: its legend, and timeline_svg() below.
std::string timeline_picture_svg(const Timeline& timeline);

/// Draws the color legend of timeline_svg() as an SVG.
std::string timeline_legend_svg(bool with_path = false);

/// Draws the memory of a group's ranks over time, as a stack of parameters, gradients, optimizer, activations
/// and buffers. The time scale is the one of timeline_svg(timeline, timeline.makespan). It marks the peak and
/// draws `limit` as a line. `timeline` must have memory points. Of several points within half a pixel, only
/// the highest is drawn.
std::string memory_svg(const Timeline& timeline, std::size_t group, std::optional<Bytes> limit);

}  // namespace dflop
