// A cell of a study is one unit of work: it compares several systems or schedulers on one model, cluster and
// data set.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/names.hpp"
#include "core/sample.hpp"
#include "experiments/studies/setting.hpp"

namespace dflop {

/// A StudyCellKind says what a cell compares.
enum class StudyCellKind : std::uint8_t {
  systems,     ///< systems: the baselines and both readings of the published method
  schedulers,  ///< schedulers, on the plan of the published method
  correction,  ///< Adaptive Correction under anomalies, on the plan of the published method
  habits,      ///< the published method, and a baseline run with habits that cost throughput
};
template <>
inline constexpr NameTable<StudyCellKind, 4> kNames<StudyCellKind> = {
    {{StudyCellKind::systems, "systems"},
     {StudyCellKind::schedulers, "schedulers"},
     {StudyCellKind::correction, "correction"},
     {StudyCellKind::habits, "habits"}}};

/// All studies use this cluster.
inline constexpr std::string_view kStudyCluster = "a100-80g";

struct StudyCell {
  std::string label;  ///< the cell's label in its study
  std::string model;
  int nodes = 1;
  std::string data;  ///< a file in the data sets folder
  int gbs = 0;
  int iterations = 1;
  std::vector<Modality> modalities = {};  ///< empty: all modalities of the data
  StudyCellKind kind = StudyCellKind::systems;
};

/// A FigureColumn describes a figure that rows can have.
struct FigureColumn {
  std::string_view key;  ///< includes the unit
  std::string_view title;
  int decimals = 0;
  double scale = 1;  ///< factor applied to the figure in tables
};

/// Returns all figures, in the order of the table columns.
std::span<const FigureColumn> figure_columns();

/// A FigureRow holds the figures of one system, scheduler or anomaly of a cell, or of the data set if the
/// row's name is "data".
struct FigureRow {
  std::string name;
  std::string detail;  ///< the plan, or why there are no figures
  std::map<std::string, double, std::less<>> figures = {};

  /// Returns a figure; nullopt if the row does not have it.
  std::optional<double> find(std::string_view key) const;

  bool operator==(const FigureRow&) const = default;
};

/// Runs a cell; `folder` has the data sets. Figures are the same in every run, except measured seconds and
/// figures of ILP solutions, which depend on the time limit.
/// @throws Error (input) for data that cannot be read
std::vector<FigureRow> run_cell(const StudyCell& cell, const Setting& setting, const std::string& folder);

}  // namespace dflop
