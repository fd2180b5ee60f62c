// A SweepRow is one cell of a sweep: the values of its axes, and its results.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "experiments/cli/table.hpp"

namespace dflop {

/// An Axis is a quantity that a sweep varies. Rows are ordered by the axes in this order; cells that differ
/// only in the last two axes share a plan.
enum class Axis : std::uint8_t {
  model,
  cluster,
  nodes,
  intra_node_bandwidth,
  inter_node_bandwidth,
  data,
  modalities,
  gbs,
  iterations,
  seed,
  planner,
  pipeline_schedule,
  recompute,
  options,
  scheduler,
  conditions,
};
inline constexpr std::size_t kAxes = 16;
inline constexpr std::size_t kPlanAxes = 14;  ///< number of axes before the scheduler

/// A Measure is a result of a cell. The last three are measured times, which differ between runs.
enum class Measure : std::uint8_t {
  status,
  reason,
  plan,
  iteration_s_mean,
  iteration_s_p95,
  samples_per_s,
  llm_tokens_per_s,
  mfu,
  idle_fraction,
  peak_memory_bytes,
  schedule_objective,
  schedule_gap,
  schedule_status,
  flop_ratio,
  heterogeneity,
  plan_json,
  planning_s,
  scheduling_s,
  wall_s,
};
inline constexpr std::size_t kMeasures = 19;
inline constexpr std::size_t kFirstMeasured = 16;

/// A CellKind says how the values of a column are stored.
enum class CellKind : std::uint8_t { text, whole, real };

struct SweepColumn {
  Column column;
  CellKind kind = CellKind::text;
  /// Default value of an axis that a spec leaves out; missing if a spec must have this axis.
  Cell usual = {};
};

// Default values of axes that a spec leaves out:
inline constexpr const char* kAllModalities = "all";
inline constexpr const char* kNoConditions = "none";
inline constexpr const char* kDefaultOption = "default";  ///< the option is not passed

/// Returns all columns: first the axes (0 to kAxes - 1), then the measures.
const std::array<SweepColumn, kAxes + kMeasures>& sweep_columns();

/// Returns the index of a column.
constexpr std::size_t index_of(Axis axis) {
  return static_cast<std::size_t>(axis);
}
constexpr std::size_t index_of(Measure measure) {
  return kAxes + static_cast<std::size_t>(measure);
}

/// Returns the axis with this name, such as "nodes".
std::optional<Axis> axis_from_string(std::string_view name);

/// Returns the index of the column with this name.
std::optional<std::size_t> sweep_column(std::string_view name);

struct SweepRow {
  std::array<Cell, kAxes + kMeasures> cells;  ///< all axes have values; measures may be missing

  Cell& operator[](Axis axis) { return cells[index_of(axis)]; }
  Cell& operator[](Measure measure) { return cells[index_of(measure)]; }
  const Cell& operator[](Axis axis) const { return cells[index_of(axis)]; }
  const Cell& operator[](Measure measure) const { return cells[index_of(measure)]; }
  const std::string& text(Axis axis) const { return std::get<std::string>((*this)[axis]); }
  std::int64_t whole(Axis axis) const { return std::get<std::int64_t>((*this)[axis]); }
  double real(Axis axis) const { return std::get<double>((*this)[axis]); }
  bool has_status(std::string_view status) const;

  std::span<const Cell> axes() const { return std::span(cells).first(kAxes); }
  std::span<const Cell> plan_axes() const { return std::span(cells).first(kPlanAxes); }
  /// Returns the cells whose values are the same in every run.
  std::span<const Cell> reproducible() const { return std::span(cells).first(kAxes + kFirstMeasured); }
};

/// Returns a key that identifies a cell: its axes as JSON, always in the same order and spelling.
std::string sweep_key(const SweepRow& row);

/// Returns whether row `a` comes before row `b` in the order of their axes.
bool before(const SweepRow& a, const SweepRow& b);

/// Returns whether the rows have different values in a column.
bool varies(std::span<const SweepRow> rows, std::size_t column);

}  // namespace dflop
