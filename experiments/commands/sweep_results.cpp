// dflop sweep export and dflop sweep plot show the results of sweeps as tables and pictures.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "core/error.hpp"
#include "experiments/charts/charts.hpp"
#include "experiments/cli/command.hpp"
#include "experiments/cli/picture.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/options/provenance_options.hpp"
#include "experiments/sweep/chart.hpp"
#include "experiments/sweep/store.hpp"
#include "experiments/trust/assumptions.hpp"
#include "experiments/trust/spread.hpp"
#include "solver/schedulers/methods.hpp"
#include "solver/schedulers/schedulers.hpp"
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
      {"db", texts("FILE...").required(), "databases of 'dflop sweep', such as the databases of all shards"},
      {"where", repeatable_text("AXIS=VALUE"), "only cells with this value"},
  });
}

/// Returns whether a column is shown: for machines all are, for people those that say something.
bool wanted(const std::vector<SweepRow>& rows, std::size_t column, Format format, bool measured) {
  if (column == index_of(Measure::plan_json)) return false;
  if (column >= kAxes + kFirstMeasured) return measured;
  if (!is_for_people(format)) return true;
  if (column < kAxes) return varies(rows, column);
  return std::any_of(rows.begin(), rows.end(), [&](const SweepRow& row) {
    return !std::holds_alternative<std::monostate>(row.cells[column]);
  });
}

/// Makes a table of the cells. Reasons, which are long, come last.
Table results_table(const std::vector<SweepRow>& rows, Format format, bool measured) {
  Table table;
  std::vector<std::size_t> columns;
  for (std::size_t c = 0; c < sweep_columns().size(); ++c) {
    if (wanted(rows, c, format, measured)) columns.push_back(c);
  }
  std::stable_partition(columns.begin(), columns.end(),
                        [](std::size_t c) { return c != index_of(Measure::reason); });
  for (const std::size_t c : columns) table.columns.push_back(sweep_columns()[c].column);
  for (const SweepRow& row : rows) {
    table.rows.emplace_back();
    for (const std::size_t c : columns) table.rows.back().push_back(row.cells[c]);
  }
  return table;
}

/// Makes a table of the cells that differ in nothing but the seed: how many have a result, and its mean with
/// an interval.
Table seeds_of_sweep_table(const std::vector<SweepRow>& rows, Format format) {
  constexpr std::array kShown = {Measure::iteration_s_mean, Measure::samples_per_s, Measure::mfu};
  Table table;
  std::vector<std::size_t> axes;
  for (std::size_t c = 0; c < kAxes; ++c) {
    if (c != index_of(Axis::seed) && (!is_for_people(format) || varies(rows, c))) axes.push_back(c);
  }
  for (const std::size_t c : axes) table.columns.push_back(sweep_columns()[c].column);
  table.columns.push_back({"seeds", "seeds"});
  table.columns.push_back({"ok", "ok"});
  for (const Measure measure : kShown) {
    Column column = sweep_columns()[index_of(measure)].column;
    table.columns.push_back({column.key + "_over_seeds", column.title, column.decimals, column.scale});
    table.columns.push_back({column.key + "_95", "+-", column.decimals, column.scale});
  }
  std::vector<std::vector<const SweepRow*>> groups;
  std::map<std::string, std::size_t> group_of;
  for (const SweepRow& row : rows) {
    SweepRow of_any_seed = row;
    of_any_seed[Axis::seed] = Cell();
    const auto [group, is_new] = group_of.try_emplace(sweep_key(of_any_seed), groups.size());
    if (is_new) groups.emplace_back();
    groups[group->second].push_back(&row);
  }
  std::size_t incomplete = 0;
  for (const std::vector<const SweepRow*>& group : groups) {
    std::vector<Cell>& out = table.rows.emplace_back();
    for (const std::size_t c : axes) out.push_back(group.front()->cells[c]);
    out.emplace_back(group.size());
    const auto ok = static_cast<std::size_t>(
        std::ranges::count_if(group, [](const SweepRow* row) { return row->has_status("ok"); }));
    out.emplace_back(ok);
    const bool is_incomplete = ok > 0 && ok < group.size();
    incomplete += is_incomplete ? 1 : 0;
    for (const Measure measure : kShown) {
      std::vector<double> values;
      for (const SweepRow* row : group) {
        if (row->has_status("ok")) values.push_back(std::get<double>((*row)[measure]));
      }
      const Spread spread = spread_of(values);
      out.push_back(spread.count > 0 ? Cell(spread.mean) : Cell());
      out.push_back(spread.count > 1 ? Cell(spread.half_width) : Cell());
    }
    if (is_for_people(format)) {
      out.push_back(is_incomplete ? Cell(fmt::format("mean of {} of {} seeds", ok, group.size())) : Cell());
    }
  }
  if (is_for_people(format)) {
    if (incomplete > 0) {
      table.columns.push_back({"note", "note"});
    } else {
      for (std::vector<Cell>& row : table.rows) row.pop_back();
    }
  }
  if (incomplete > 0) {
    say("dflop: note: {} of {} rows have means over fewer seeds than were run (ok is less than seeds): "
        "seeds without a result may be the hard ones, so compare with care\n",
        incomplete, table.rows.size());
  }
  return table;
}

/// Notes that one scheduler has minimized different objectives in cells that are compared.
void note_objectives(const std::vector<SweepRow>& rows) {
  std::map<std::string, std::map<std::string, std::set<std::string>>> planners;  // of scheduler and objective
  for (const SweepRow& row : rows) {
    const std::string& scheduler = row.text(Axis::scheduler);
    const auto* objective = std::get_if<std::string>(&row[Measure::schedule_objective]);
    // A store of another version may have schedulers that are not known here.
    if (!row.has_status("ok") || objective == nullptr ||
        std::ranges::count(scheduler_names(), scheduler) == 0)
      continue;
    if (find_method(scheduler).minimizes) planners[scheduler][*objective].insert(row.text(Axis::planner));
  }
  for (const auto& [scheduler, objectives] : planners) {
    if (objectives.size() < 2) continue;
    std::vector<std::string> texts;
    for (const auto& [objective, names] : objectives)
      texts.push_back(fmt::format("plans of {} for '{}'", fmt::join(names, ", "), objective));
    say("dflop: note: {} makes microbatches in {}, as the plans ask; '--objective' in a cell's options sets "
        "one objective for all\n",
        scheduler, fmt::join(texts, " and "));
  }
}

int run_export(const Values& values) {
  const Format format = read_format(values);
  const std::vector<SweepRow> rows = read_rows(values);
  note_objectives(rows);
  if (values["over-seeds"].as<bool>()) {
    refuse_given(values, {"measured"}, "applies only to single cells, found '--over-seeds'");
    print_table(seeds_of_sweep_table(rows, format), format);
    return 0;
  }
  print_table(results_table(rows, format, values["measured"].as<bool>()), format);
  return 0;
}

/// Reads the name of a column that is one of `names`.
std::size_t read_column(const Values& values, const std::string& option,
                        const std::vector<std::string_view>& names) {
  const auto name = values[option].as<std::string>();
  require_one_of(option, names, name);
  return *sweep_column(name);
}

std::size_t read_y(const Values& values, std::size_t x) {
  if (values.count("y") > 0) return read_column(values, "y", sweep_y_names());
  return index_of(x < kAxes ? Measure::samples_per_s : Measure::mfu);
}

/// Reads the cells, of which one at least has a result; `left_out` receives how many have none.
std::vector<SweepRow> read_results(const Values& values, std::size_t& left_out) {
  std::vector<SweepRow> rows = read_rows(values);
  left_out = static_cast<std::size_t>(
      std::ranges::count_if(rows, [](const SweepRow& row) { return !row.has_status("ok"); }));
  if (rows.size() == left_out) {
    throw Error(ErrorKind::input, "no cell has a result to draw", read_texts(values, "db").front());
  }
  return rows;
}

int run_plot(const Values& values) {
  const std::size_t x = read_column(values, "x", sweep_x_names());
  const std::size_t y = read_y(values, x);
  const std::string out = read_picture_output(values, "out");
  std::size_t left_out = 0;
  const std::vector<SweepRow> rows = read_results(values, left_out);
  const SweepPicture picture = sweep_picture(rows, x, y);
  const std::vector<SweepPanel>& panels = picture.panels;
  constexpr std::size_t kMaxSeedPanels = 6;
  if (x == index_of(Axis::seed) && panels.size() > kMaxSeedPanels) {
    refuse_option(
        "x", fmt::format("along seeds there would be {} pictures side by side, expected at most {}: select "
                         "some with '--where', or choose another axis, along which bars show the spread over "
                         "seeds",
                         panels.size(), kMaxSeedPanels));
  }
  if (panels.size() > kMaxSweepPanels) {
    refuse_option("where",
                  fmt::format("required to select pictures: there would be {} side by side, expected at most "
                              "{}",
                              panels.size(), kMaxSweepPanels));
  }
  write_file_atomically(out, as_picture(sweep_svg(picture), out));
  std::size_t points = 0;
  for (const SweepPanel& panel : panels) {
    for (const auto& [name, line] : panel.lines) points += line.size();
  }
  print_table(
      {{{"panels", "panels"}, {"points", "points"}, {"cells", "cells"}, {"left_out", "without result"}},
       {{panels.size(), points, rows.size() - left_out, left_out}}},
      Format::table);
  return 0;
}

/// Draws samples/s along every axis that varies and makes no line, and MFU along what the data is like.
std::string pictures(const std::vector<SweepRow>& all) {
  std::vector<SweepRow> rows = all;
  std::erase_if(rows, [](const SweepRow& row) { return !row.has_status("ok"); });
  std::string out;
  const auto draw = [&](std::size_t x, Measure y) {
    const SweepPicture picture = sweep_picture(all, x, index_of(y));
    const std::string& title = sweep_columns()[x].column.title;
    if (picture.panels.size() > kMaxSweepPanels) {
      out += fmt::format(
          "<p>Along {}: {} pictures would stand side by side; 'dflop sweep plot --where' draws some.</p>\n",
          html_escaped(title), picture.panels.size());
      return;
    }
    out += fmt::format("<h2>{} along {}</h2>\n<div class='scroll'>{}</div>\n",
                       html_escaped(sweep_columns()[index_of(y)].column.title), html_escaped(title),
                       sweep_svg(picture));
  };
  for (std::size_t axis = 0; axis < kAxes; ++axis) {
    const bool line = axis == index_of(Axis::planner) || axis == index_of(Axis::scheduler) ||
                      axis == index_of(Axis::pipeline_schedule) || axis == index_of(Axis::seed);
    if (!line && varies(rows, axis)) draw(axis, Measure::samples_per_s);
  }
  const bool data = varies(rows, index_of(Axis::model)) || varies(rows, index_of(Axis::data)) ||
                    varies(rows, index_of(Axis::modalities));
  if (data) draw(index_of(Measure::flop_ratio), Measure::mfu);
  if (out.empty()) draw(index_of(Axis::planner), Measure::samples_per_s);
  return out;
}

/// Says how far the figures of the clusters can be trusted; one whose file is not here any more is unknown.
AssumptionBlock report_assumptions(const std::vector<SweepRow>& rows) {
  AssumptionBlock block;
  std::set<std::string> clusters;
  for (const SweepRow& row : rows) clusters.insert(row.text(Axis::cluster));
  for (const std::string& cluster : clusters) {
    try {
      assume_preset(block, cluster);
    } catch (const Error&) {
      block.add("preset", cluster + ": unknown, because its file is not here");
    }
  }
  block.add("layout", "plans with * have modules that share GPUs, which is confirmed on no GPU");
  block.add("time",
            "iterations are only training steps; '--overhead' of 'compare' adds other time to the hours");
  return block;
}

int run_report(const Values& values) {
  const std::string out = read_output(values, "out").value();
  std::size_t left_out = 0;
  const std::vector<SweepRow> rows = read_results(values, left_out);
  std::string body = html_lines(provenance_lines(made_here(values)));
  body += fmt::format("<p>{} cells with a result, {} without.</p>\n", rows.size() - left_out, left_out);
  body += report_assumptions(rows).html();
  body += pictures(rows);
  body += fmt::format("<h2>All cells</h2>\n<div class='scroll'><pre>{}</pre></div>\n",
                      html_escaped(to_text(results_table(rows, Format::table, false))));
  write_file_atomically(out, html_page("Sweep", body));
  print_table({{{"cells", "cells"}, {"left_out", "without result"}}, {{rows.size() - left_out, left_out}}},
              Format::table);
  return 0;
}

}  // namespace

Command sweep_export_command() {
  Command command{
      .name = "sweep export",
      .task = Task::explain,
      .summary = "print the results of sweeps as a table",
      .description =
          R"(Prints one row for each cell, ordered by its axes. Databases of several shards make one table.
status is ok, infeasible or failed, and reason says why.
  schedule_gap   how far a schedule may be from the best possible value of schedule_objective, mean over
                 iterations
  flop_ratio     encoder FLOP / LLM FLOP of all samples
  heterogeneity  standard deviation / mean of a sample's FLOP in both modules
Text tables omit axes with only one value. The databases also have the plans:
  sqlite3 sweep.sqlite 'SELECT plan_json FROM cells')",
      .example = "dflop sweep export --db sweep.sqlite --format csv",
      .run = run_export,
  };
  add_result_options(command.options);
  command.options.add({
      {"measured", flag(),
       "add measured times in seconds: for planning, for scheduling an iteration, and for scheduling and "
       "simulating; other cells ran at the same time"},
      {"over-seeds", flag(),
       "print one row for all seeds of a cell: mean and 95 % interval (Student's t) of the seeds that "
       "have a result; a note says if some have none"},
  });
  return command;
}

Command sweep_plot_command() {
  Command command{
      .name = "sweep plot",
      .task = Task::explain,
      .summary = "draw the results of sweeps as a picture",
      .description =
          R"(Draws one line for each planner, scheduler and pipeline schedule: the mean over seeds, with a bar
for its 95 % interval (Student's t) if there are several seeds. Each combination of the other axes has its own
panel. The horizontal axis is an axis of the sweep, with names in their order, or
  flop_ratio     encoder FLOP / LLM FLOP, over models, data and modalities
  heterogeneity  the coefficient of variation of a sample's FLOP, likewise
The vertical axis is --y; default: samples/s along an axis of the sweep, else MFU. Number axes begin at zero.
A hollow point with a label such as "2 of 3" is the mean of the seeds that have a result. Prints how many
points it drew and how many cells have none.)",
      .example = "dflop sweep plot --db sweep.sqlite --x nodes --out nodes.svg",
      .run = run_plot,
      .has_format = false,
  };
  add_result_options(command.options);
  command.options.add({
      {"x", text("NAME", "nodes"), "horizontal axis: " + listed(sweep_x_names())},
      {"y", text("NAME"), "vertical axis: " + listed(sweep_y_names())},
      {"out", text("FILE").required(), "picture to write, as SVG, PNG or PDF, by file extension"},
  });
  return command;
}

Command sweep_report_command() {
  Command command{
      .name = "sweep report",
      .task = Task::explain,
      .summary = "write the results of sweeps as a page with pictures",
      .description =
          R"(Writes one self-contained page: samples/s along every axis with several values, MFU along the
properties of the data, and all cells as a table. 'dflop sweep plot' draws any other pair.)",
      .example = "dflop sweep report --db sweep.sqlite --out sweep.html",
      .run = run_report,
      .has_format = false,
  };
  add_result_options(command.options);
  command.options.add({{"out", text("FILE").required(), "HTML page to write"}});
  return command;
}

}  // namespace dflop
