// This file draws charts of sweeps: a measure over an axis or a property of the data, with a line for each
// system.
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
  double x = 0;  ///< if the axis has names: position of the name, counting from 1
  double y = 0;  ///< mean over seeds
  double least = 0;
  double most = 0;  ///< max over seeds
  double low = 0;
  double high = 0;    ///< upper end of the mean's 95 % interval (Student's t); = y with one seed
  std::string label;  ///< values that distinguish it from other points of its line
  int seeds = 1;      ///< number of seeds with a result
  int missing = 0;    ///< number of seeds without a result
};

struct SweepPanel {
  std::string title;  ///< values of the axes that differ between panels
  /// By the line's name, such as planner and scheduler; points from left to right.
  std::map<std::string, std::vector<SweepPoint>> lines;
};

struct SweepPicture {
  std::size_t x = 0;                     ///< column
  std::vector<std::string> places = {};  ///< names on the x axis, in order; empty: x is a number
  std::size_t y = 0;                     ///< column
  std::string caption = {};              ///< values that all panels have in common
  bool has_seeds = false;                ///< some point has several seeds; bars then show intervals of means
  bool lacks_seeds = false;              ///< some seeds of a point have no result
  std::vector<SweepPanel> panels = {};
};

/// Makes a picture of the column `y` over the column `x`. Lines show the cells with status ok; other cells
/// are only counted. Planner, scheduler and pipeline order determine the line. The axis `x` determines the
/// position; for flop_ratio and heterogeneity, the model, data and modalities do. Each combination of the
/// remaining axes' values has its own panel. Points are means over seeds, unless `x` is the seed.
SweepPicture sweep_picture(const std::vector<SweepRow>& all, std::size_t x, std::size_t y);

/// Draws an SVG that loads nothing external, all panels with the same scales.
std::string sweep_svg(const SweepPicture& picture);

}  // namespace dflop
