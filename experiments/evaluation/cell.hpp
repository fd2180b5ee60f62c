// A cell of a study is what is run at once: some systems, or schedulers, on one model, cluster and data set.
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
#include "experiments/studies/options.hpp"

namespace dflop {

/// A StudyCellKind says what a cell compares.
enum class StudyCellKind : std::uint8_t {
  systems,     ///< the baselines and the published method, in both readings
  schedulers,  ///< methods on the plan of the published method
  correction,  ///< anomalies on that plan, with Adaptive Correction
};
template <>
inline constexpr NameTable<StudyCellKind, 3> kNames<StudyCellKind> = {
    {{StudyCellKind::systems, "systems"},
     {StudyCellKind::schedulers, "schedulers"},
     {StudyCellKind::correction, "correction"}}};

/// All studies are on this cluster.
inline constexpr std::string_view kStudyCluster = "a100-80g";

struct StudyCell {
  std::string label;  ///< what it stands for in its study
  std::string model;
  int nodes = 1;
  std::string data;  ///< file in the folder of data sets
  int gbs = 0;
  int iterations = 1;
  std::vector<Modality> modalities = {};  ///< none: all that the data has
  StudyCellKind kind = StudyCellKind::systems;
};

/// A FigureColumn is a figure that rows may have.
struct FigureColumn {
  std::string_view key;  ///< with its unit
  std::string_view title;
  int decimals = 0;
  double scale = 1;  ///< tables show figure * scale
};

/// Returns all figures, in the order of tables.
std::span<const FigureColumn> figure_columns();

/// A FigureRow is one system, scheduler or anomaly of a cell, or "data", what the data is like.
struct FigureRow {
  std::string name;
  std::string detail;  ///< the plan, or why there are no figures
  std::map<std::string, double, std::less<>> figures = {};

  /// Returns a figure; nothing where the row has none.
  std::optional<double> find(std::string_view key) const;

  bool operator==(const FigureRow&) const = default;
};

/// Runs a cell. Figures are the same in every run, but for measured seconds and what an ILP finds in its
/// time.
/// @throws Error (input) for data that cannot be read
std::vector<FigureRow> run_cell(const StudyCell& cell, const Setting& setting, const std::string& folder);

}  // namespace dflop
