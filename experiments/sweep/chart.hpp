// Pictures of sweeps show a measure against an axis or against what the data is like, a line for each system.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/sweep/row.hpp"

namespace dflop {

inline constexpr std::size_t kMostSweepPanels = 60;

/// Returns the columns that may stand to the right, by name: every axis, flop_ratio and heterogeneity.
std::vector<std::string_view> sweep_x_names();
/// Returns the columns that may stand upwards: every measure that is a number.
std::vector<std::string_view> sweep_y_names();

struct SweepPoint {
  double x = 0;  ///< of an axis of names: the place of its value, from 1 on
  double y = 0;  ///< mean over seeds
  double least = 0;
  double most = 0;  ///< of any seed
  double low = 0;
  double high = 0;    ///< of the mean's 95 % interval (Student's t); = y where there is one seed
  std::string label;  ///< what the other points of the line have otherwise
  int seeds = 1;      ///< that have a result
  int missing = 0;    ///< that have none
};

struct SweepPanel {
  std::string title;  ///< of the axes in which panels differ
  std::map<std::string, std::vector<SweepPoint>>
      lines;  ///< by planner and scheduler, points from left to right
};

struct SweepPicture {
  std::size_t x = 0;                     ///< column
  std::vector<std::string> places = {};  ///< names of the values of an axis of names; empty: x is a number
  std::size_t y = 0;                     ///< column
  std::string caption = {};              ///< what all panels have in common
  bool has_seeds = false;                ///< points have several, and bars are intervals of their means
  bool lacks_seeds = false;              ///< some seeds of a point have no result
  std::vector<SweepPanel> panels = {};
};

/// Makes lines of the cells with status ok, at least one, and counts the others: a panel for each combination
/// of the axes that make neither the line (planner, scheduler, pipeline order) nor x (the axis itself; of
/// flop_ratio and heterogeneity model, data and modalities). Points are means over seeds, unless these are x.
/// `x` and `y` are columns.
SweepPicture sweep_picture(const std::vector<SweepRow>& all, std::size_t x, std::size_t y);

/// Draws an SVG that refers to nothing outside, all panels with the same scales.
std::string sweep_svg(const SweepPicture& picture);

}  // namespace dflop
