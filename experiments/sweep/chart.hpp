// Charts of sweeps plot a measure against an axis or a property of the data, with a line for each system.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/sweep/row.hpp"

namespace dflop {

inline constexpr std::size_t kMaxSweepPanels = 60;

/// Returns the names of the columns that can be on the x axis: every axis, flop_ratio and heterogeneity.
std::vector<std::string_view> sweep_x_names();
/// Returns the names of the columns that can be on the y axis: every numeric measure.
std::vector<std::string_view> sweep_y_names();

struct SweepPoint {
  double x = 0;  ///< for an axis of names: the position of its value, counting from 1
  double y = 0;  ///< mean over seeds
  double least = 0;
  double most = 0;  ///< max over seeds
  double low = 0;
  double high = 0;    ///< upper end of the mean's 95 % interval (Student's t); = y with one seed
  std::string label;  ///< how it differs from the other points of the line
  int seeds = 1;      ///< number of seeds with a result
  int missing = 0;    ///< number of seeds without a result
};

struct SweepPanel {
  std::string title;  ///< values of the axes in which panels differ
  std::map<std::string, std::vector<SweepPoint>>
      lines;  ///< by planner and scheduler; points from left to right
};

struct SweepPicture {
  std::size_t x = 0;                     ///< column
  std::vector<std::string> places = {};  ///< values of an axis of names; empty: x is a number
  std::size_t y = 0;                     ///< column
  std::string caption = {};              ///< what all panels have in common
  bool has_seeds = false;                ///< points have several seeds, and bars are intervals of their means
  bool lacks_seeds = false;              ///< some seeds of a point have no result
  std::vector<SweepPanel> panels = {};
};

/// Makes lines of the cells with status ok, and counts the other cells. At least one cell must be ok. There
/// is a panel for each combination of the axes that determine neither the line (planner, scheduler, pipeline
/// order) nor x (the axis itself; for flop_ratio and heterogeneity: model, data and modalities). Points are
/// means over seeds, unless the seed is x. `x` and `y` are indices of columns.
SweepPicture sweep_picture(const std::vector<SweepRow>& all, std::size_t x, std::size_t y);

/// Draws an SVG that loads nothing external, all panels with the same scales.
std::string sweep_svg(const SweepPicture& picture);

}  // namespace dflop
