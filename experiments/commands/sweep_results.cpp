// dflop sweep export and dflop sweep plot show the results of sweeps as tables and pictures.
#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "experiments/cli/command.hpp"
#include "experiments/sweep/chart.hpp"
#include "experiments/sweep/store.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

/// Keeps the rows whose axis has the value, of "nodes=4".
void keep_where(std::vector<SweepRow>& rows, const std::string& condition) {
  const std::size_t sign = condition.find('=');
  const std::optional<Axis> axis = axis_from_string(condition.substr(0, sign));
  if (sign == std::string::npos || !axis) {
    std::string known;
    for (std::size_t i = 0; i < kAxes; ++i) known += (i > 0 ? ", " : "") + sweep_columns()[i].column.key;
    refuse_value("where", "AXIS=VALUE with an axis of " + known, condition);
  }
  const std::string value = condition.substr(sign + 1);
  std::erase_if(rows, [&](const SweepRow& row) { return plain_text(row[*axis]) != value; });
  if (rows.empty()) refuse_option("where", fmt::format("no cell is left of '{}'", condition));
}

std::vector<SweepRow> read_rows(const Values& values) {
  std::vector<SweepRow> rows = read_sweeps(read_texts(values, "db"));
  for (const std::string& condition : read_texts(values, "where")) keep_where(rows, condition);
  return rows;
}

void add_result_options(Options& options) {
  options.add({
      {"db", texts("FILE...").required(), "databases of 'dflop sweep', as those of all shards"},
      {"where", repeatable_text("AXIS=VALUE"), "only cells with this value; may be given several times"},
  });
}

/// Returns whether a column is shown: for machines all are, for people those that say something.
bool wanted(const std::vector<SweepRow>& rows, std::size_t column, Format format, bool measured) {
  if (column == index_of(Measure::plan_json)) return false;
  if (column >= kAxes + kFirstMeasured) return measured;
  if (format != Format::table) return true;
  if (column < kAxes) return varies(rows, column);
  return std::any_of(rows.begin(), rows.end(), [&](const SweepRow& row) {
    return !std::holds_alternative<std::monostate>(row.cells[column]);
  });
}

int run_export(const Values& values) {
  const Format format = read_format(values);
  const std::vector<SweepRow> rows = read_rows(values);
  Table table;
  std::vector<std::size_t> columns;
  for (std::size_t c = 0; c < sweep_columns().size(); ++c) {
    if (!wanted(rows, c, format, values["measured"].as<bool>())) continue;
    columns.push_back(c);
    table.columns.push_back(sweep_columns()[c].column);
  }
  for (const SweepRow& row : rows) {
    table.rows.emplace_back();
    for (const std::size_t c : columns) table.rows.back().push_back(row.cells[c]);
  }
  print_table(table, format);
  return 0;
}

Measure read_measure(const Values& values, SweepX x) {
  const std::optional<std::string> name = read_text(values, "y");
  if (!name) return x == SweepX::nodes ? Measure::samples_per_s : Measure::mfu;
  const std::vector<Measure> known = {
      Measure::samples_per_s, Measure::llm_tokens_per_s, Measure::mfu,
      Measure::idle_fraction, Measure::iteration_s_mean, Measure::iteration_s_p95,
      Measure::schedule_gap,  Measure::peak_memory_bytes};
  std::string names;
  for (const Measure measure : known) {
    const std::string& key = sweep_columns()[index_of(measure)].column.key;
    if (key == *name) return measure;
    names += (names.empty() ? "" : ", ") + key;
  }
  refuse_value("y", "one of " + names, *name);
}

int run_plot(const Values& values) {
  const auto x = read_named<SweepX>(values, "x");
  const Measure y = read_measure(values, x);
  const std::string out = read_output(values, "out").value();
  std::vector<SweepRow> rows = read_rows(values);
  const auto left_out = std::erase_if(rows, [](const SweepRow& row) { return !row.has_status("ok"); });
  if (rows.empty())
    throw Error(ErrorKind::input, "no cell has a result to draw", read_texts(values, "db").front());
  const SweepPicture picture = sweep_picture(rows, x, y);
  const std::vector<SweepPanel>& panels = picture.panels;
  if (panels.size() > kMostSweepPanels) {
    refuse_option("where",
                  fmt::format("required, as {} pictures would stand side by side, and {} are the most",
                              panels.size(), kMostSweepPanels));
  }
  write_file_atomically(out, sweep_svg(picture));
  std::size_t points = 0;
  for (const SweepPanel& panel : panels) {
    for (const auto& [name, line] : panel.lines) points += line.size();
  }
  print_table(
      {{{"panels", "panels"}, {"points", "points"}, {"cells", "cells"}, {"left_out", "without result"}},
       {{panels.size(), points, rows.size(), left_out}}},
      Format::table);
  return 0;
}

}  // namespace

Command sweep_export_command() {
  Command command{
      .name = "sweep export",
      .summary = "results of sweeps as a table",
      .description =
          R"(Prints one row for each cell, ordered by its axes. Databases of several shards make one
table. status is ok, infeasible or failed, and reason says why.
  schedule_gap   how far a schedule may be from the best possible in schedule_objective, mean over
                 iterations
  flop_ratio     encoder FLOP / LLM FLOP of all samples
  heterogeneity  standard deviation / mean of a sample's FLOP in both modules
The table for people leaves out axes with one value. Plans are in the databases:
  sqlite3 sweep.sqlite 'SELECT plan_json FROM cells')",
      .example = "dflop sweep export --db sweep.sqlite --format csv",
      .run = run_export,
  };
  add_result_options(command.options);
  command.options.add({
      {"measured", flag(),
       "add seconds of planning, of scheduling an iteration and of scheduling and simulating, as measured while "
       "other cells ran"},
  });
  return command;
}

Command sweep_plot_command() {
  Command command{
      .name = "sweep plot",
      .summary = "results of sweeps as a picture",
      .description =
          R"(Draws one line for each planner, scheduler and pipeline schedule, the mean over seeds, and one panel
for each combination of the other axes:
  --x nodes          samples/s against nodes
  --x flop_ratio     MFU against encoder FLOP / LLM FLOP, over models, data and modalities
  --x heterogeneity  MFU against the coefficient of variation of a sample's FLOP, likewise
Both axes begin at zero. Prints how many points it drew and how many cells have none.)",
      .example = "dflop sweep plot --db sweep.sqlite --x nodes --out nodes.svg",
      .run = run_plot,
      .has_format = false,
  };
  add_result_options(command.options);
  command.options.add({
      {"x", text("nodes|flop_ratio|heterogeneity", "nodes"), "to the right"},
      {"y", text("NAME"),
       "upwards: samples_per_s, llm_tokens_per_s, mfu, idle_fraction, iteration_s_mean, iteration_s_p95, "
       "schedule_gap or peak_memory_bytes"},
      {"out", text("FILE").required(), "the picture, SVG"},
  });
  return command;
}

}  // namespace dflop
