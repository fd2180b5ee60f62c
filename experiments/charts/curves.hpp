// These draw curves over whole numbers, as those of a training run's steps, in panels below each other.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dflop {

/// A ChartCurve is a line through points, or, with `marks`, the points alone.
struct ChartCurve {
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< rising in x
  std::string_view colour = "#4c78a8";
  bool marks = false;
  bool pale = false;  ///< drawn thin, as what another curve is the mean of
};

/// A ChartPanel has curves with one scale.
struct ChartPanel {
  std::string title;  ///< with the unit
  std::vector<ChartCurve> curves;
};

/// Draws panels, whose x axes are the same, with `x_title` below and `caption` above all. A scale begins at
/// 0; what lies above one and a half times the value below which 99 % of a panel's points lie is cut off,
/// with a note. Lines of more points than pixels are thinned out to the least and the most of each pixel.
std::string curves_svg(const std::string& caption, const std::string& x_title,
                       const std::vector<ChartPanel>& panels);

}  // namespace dflop
