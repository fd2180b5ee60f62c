// This file draws curves over whole numbers, such as the steps of a training run, in stacked panels.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dflop {

/// A ChartCurve is a line through points or, with `marks`, only the points.
struct ChartCurve {
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< in increasing order of x
  std::string_view color = "#4c78a8";
  bool marks = false;
  bool pale = false;  ///< whether to draw it thin, as raw data behind the curve of their running mean
};

/// A ChartPanel holds curves that share one vertical scale.
struct ChartPanel {
  std::string title;  ///< including the unit
  std::vector<ChartCurve> curves;
};

/// Draws panels with a common x axis, `x_title` below and `caption` above. Scales begin at 0. Points above
/// 1.5 times a panel's 99th percentile are cut off, with a note. If a line has more points than pixels, only
/// the min and max of each pixel are drawn.
std::string curves_svg(const std::string& caption, const std::string& x_title,
                       const std::vector<ChartPanel>& panels);

}  // namespace dflop
