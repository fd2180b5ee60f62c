#include "experiments/sweep/row.hpp"

#include <algorithm>

#include "traces/text/json_writer.hpp"

namespace dflop {

const std::array<SweepColumn, kAxes + kMeasures>& sweep_columns() {
  using enum CellKind;
  static const std::array<SweepColumn, kAxes + kMeasures> columns = {{
      {{"model", "model"}, text},
      {{"cluster", "cluster"}, text},
      {{"nodes", "nodes"}, whole, 1},
      {{"intra_node_bandwidth", "intra-node x", 2}, real, 1.0},
      {{"inter_node_bandwidth", "inter-node x", 2}, real, 1.0},
      {{"data", "data"}, text},
      {{"modalities", "modalities"}, text, kAllModalities},
      {{"gbs", "gbs"}, whole},
      {{"iterations", "iterations"}, whole, 8},
      {{"seed", "seed"}, whole, 1},
      {{"planner", "planner"}, text},
      {{"pipeline_schedule", "pipeline schedule"}, text, kDefaultOption},
      {{"recompute", "recompute"}, text, kDefaultOption},
      {{"options", "options"}, text, kDefaultOption},
      {{"scheduler", "scheduler"}, text},
      {{"conditions", "conditions"}, text, kNoConditions},
      {{"status", "status"}, text},
      {{"reason", "reason"}, text},
      {{"plan", "plan"}, text},
      {{"iteration_s_mean", "s/iter", 3}, real},
      {{"iteration_s_p95", "p95 s", 3}, real},
      {{"samples_per_s", "samples/s", 2}, real},
      {{"llm_tokens_per_s", "tokens/s", 0}, real},
      {{"mfu", "MFU %", 1, 100}, real},
      {{"idle_fraction", "idle %", 1, 100}, real},
      {{"peak_memory_bytes", "peak GiB", 1, 0x1p-30}, whole},
      {{"schedule_objective", "objective"}, text},
      {{"schedule_gap", "gap %", 2, 100}, real},
      {{"schedule_status", "how found"}, text},
      {{"flop_ratio", "encoder/LLM FLOP", 3}, real},
      {{"heterogeneity", "CV of samples", 3}, real},
      {{"plan_json", "plan as JSON"}, text},
      {{"planning_s", "planning s", 3}, real},
      {{"scheduling_s", "scheduling s", 4}, real},
      {{"wall_s", "wall s", 3}, real},
  }};
  return columns;
}

std::optional<Axis> axis_from_string(std::string_view name) {
  for (std::size_t i = 0; i < kAxes; ++i) {
    if (sweep_columns()[i].column.key == name) return static_cast<Axis>(i);
  }
  return std::nullopt;
}

std::optional<std::size_t> sweep_column(std::string_view name) {
  for (std::size_t i = 0; i < sweep_columns().size(); ++i) {
    if (sweep_columns()[i].column.key == name) return i;
  }
  return std::nullopt;
}

bool SweepRow::has_status(std::string_view status) const {
  const auto* text = std::get_if<std::string>(&(*this)[Measure::status]);
  return text != nullptr && *text == status;
}

std::string sweep_key(const SweepRow& row) {
  std::string key;
  for (std::size_t i = 0; i < kAxes; ++i) {
    key += i == 0 ? '{' : ',';
    append_json_string(key, sweep_columns()[i].column.key);
    key += ':';
    if (const auto* text = std::get_if<std::string>(&row.cells[i])) append_json(key, *text);
    if (const auto* whole = std::get_if<std::int64_t>(&row.cells[i])) append_json(key, *whole);
    if (const auto* real = std::get_if<double>(&row.cells[i])) append_json(key, *real);
  }
  return key + '}';
}

bool before(const SweepRow& a, const SweepRow& b) {
  return std::ranges::lexicographical_compare(a.axes(), b.axes());
}

bool varies(std::span<const SweepRow> rows, std::size_t column) {
  return std::any_of(rows.begin(), rows.end(),
                     [&](const SweepRow& row) { return row.cells[column] != rows.front().cells[column]; });
}

}  // namespace dflop
