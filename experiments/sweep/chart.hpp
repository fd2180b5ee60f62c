// Pictures of sweeps show a measure against nodes or against what the data is like, a line for each system.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/names.hpp"
#include "experiments/sweep/row.hpp"

namespace dflop {

inline constexpr std::size_t kMostSweepPanels = 60;

/// A SweepX is what stands to the right.
enum class SweepX : std::uint8_t { nodes, flop_ratio, heterogeneity };
template <>
inline constexpr NameTable<SweepX, 3> kNames<SweepX> = {
    {{SweepX::nodes, "nodes"}, {SweepX::flop_ratio, "flop_ratio"}, {SweepX::heterogeneity, "heterogeneity"}}};

struct SweepPoint {
  double x = 0;
  double y = 0;
  std::string label;  ///< what the other points of the line have otherwise
};

struct SweepPanel {
  std::string title;  ///< of the axes in which panels differ
  std::map<std::string, std::vector<SweepPoint>>
      lines;  ///< by planner and scheduler, points from left to right
};

struct SweepPicture {
  SweepX x = SweepX::nodes;
  Measure y = Measure::samples_per_s;
  std::string caption;  ///< what all panels have in common
  std::vector<SweepPanel> panels;
};

/// Makes lines of cells with status ok, at least one: a panel for each combination of the axes that make
/// neither the line (planner, scheduler, pipeline order) nor x (nodes, or model, data and modalities). Points
/// are means over seeds.
SweepPicture sweep_picture(const std::vector<SweepRow>& rows, SweepX x, Measure y);

/// Draws an SVG that refers to nothing outside, all panels with the same scales.
std::string sweep_svg(const SweepPicture& picture);

}  // namespace dflop
