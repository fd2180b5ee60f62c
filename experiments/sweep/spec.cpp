#include "experiments/sweep/spec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/program_options/parsers.hpp>
#include <boost/token_functions.hpp>
#include <string_view>

#include "core/refuse.hpp"
#include "core/support/random.hpp"
#include "experiments/options/conditions.hpp"
#include "experiments/options/data_options.hpp"
#include "experiments/options/plan_options.hpp"
#include "experiments/options/scheduler_options.hpp"
#include "experiments/options/search_options.hpp"
#include "experiments/options/shared_options.hpp"
#include "experiments/presets/presets.hpp"
#include "experiments/studies/batches.hpp"
#include "experiments/studies/data.hpp"
#include "solver/planners/planners.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "traces/data/records.hpp"
#include "traces/text/strict_json.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

namespace po = boost::program_options;

constexpr std::size_t kMaxCells = 100'000;
constexpr std::int64_t kMaxIterations = 100'000;
constexpr std::int64_t kMaxNodes = 4096;
constexpr double kMinBandwidth = 1e-6;
constexpr double kMaxBandwidth = 1e6;

/// Parses options in the same way as a command does.
Values parse_options(void (*add)(Options&), const std::vector<std::string>& arguments) {
  Options options;
  add(options);
  try {
    return parse_arguments(options, arguments, false);
  } catch (const Error& error) {
    throw Error(ErrorKind::input, error.message());
  }
}

/// Splits arguments as a shell does. @throws Error (input) for an invalid escape
std::vector<std::string> split_arguments(const std::string& text) {
  try {
    return po::split_unix(text);
  } catch (const boost::escaped_list_error& problem) {
    refuse_input("", "expected options as typed in a shell, found '{}': {}", text, problem.what());
  }
}

void add_conditions(Options& options) {
  add_what_if_options(options);
  add_cluster_what_if_options(options);
}

void add_steps(Options& options) {
  options.add({{"max-tokens", whole("N"), "cut LLM sequences to N tokens"},
               {"drop-long", flag(), "leave out samples that are longer"},
               {"best-parts", flag(), "choose by simulation what the planner does not choose"}});
  add_plan_options(options);
  add_search_options(options);
  add_wish_options(options);
  add_scheduler_options(options);
}

/// These options are axes of their own, or would differ between machines.
constexpr std::array<std::string_view, 7> kNotOptions = {"scheduler", "pipeline-schedule", "order", "chunks",
                                                         "recompute", "time-limit",        "data"};
/// These options read files whose contents a sweep would have to store.
constexpr std::string_view kSeedPlans = "seed-plans";

/// Parses the options of planners and schedulers.
Values step_values(const SweepRow& cell) {
  std::vector<std::string> arguments;
  if (cell.text(Axis::options) != kDefaultOption) {
    arguments = split_arguments(cell.text(Axis::options));
    for (const std::string& argument : arguments) {
      if (argument == fmt::format("--{}", kSeedPlans) ||
          argument.starts_with(fmt::format("--{}=", kSeedPlans)))
        refuse_input("", "'--{}' is not allowed in a sweep, which stores no plans", kSeedPlans);
    }
    for (const std::string_view name : kNotOptions) {
      for (const std::string& argument : arguments) {
        if (argument != "--" + std::string(name) && !argument.starts_with(fmt::format("--{}=", name)))
          continue;
        refuse_input("", "'--{}' is {}", name,
                     name == "time-limit" ? "not allowed in a sweep: its results differ from machine to "
                                            "machine"
                                          : "an axis of its own");
      }
    }
  }
  const std::string& schedule = cell.text(Axis::pipeline_schedule);  // "interleaved:2" means 2 chunks
  if (schedule != kDefaultOption) {
    const std::size_t colon = schedule.find(':');
    arguments.insert(arguments.end(), {"--pipeline-schedule", schedule.substr(0, colon)});
    if (colon != std::string::npos) {
      arguments.insert(arguments.end(), {"--chunks", schedule.substr(colon + 1)});
    }
  }
  const std::string& recompute = cell.text(Axis::recompute);
  if (recompute != kDefaultOption) arguments.insert(arguments.end(), {"--recompute", recompute});
  return parse_options(add_steps, arguments);
}

std::int64_t most_of(Axis axis) {
  if (axis == Axis::nodes) return kMaxNodes;
  if (axis == Axis::gbs) return kMaxGbs;
  if (axis == Axis::iterations) return kMaxIterations;
  return INT64_MAX;
}

Cell read_value(Axis axis, const JsonValue& value) {
  switch (sweep_columns()[index_of(axis)].kind) {
    case CellKind::whole:
      return value.integer<std::int64_t>(axis == Axis::seed ? 0 : 1, most_of(axis));
    case CellKind::real:
      return value.number_in(kMinBandwidth, kMaxBandwidth);
    case CellKind::text:
      break;
  }
  if (value.string().empty()) value.refuse_type("a text that is not empty");
  return value.string();
}

/// Throws the error that cells with this value would throw.
void check_name(Axis axis, const std::string& name) {
  SweepRow cell;
  for (std::size_t i = 0; i < kAxes; ++i) cell.cells[i] = sweep_columns()[i].usual;
  cell[Axis::scheduler] = "lpt";
  cell[axis] = name;
  switch (axis) {
    case Axis::model:
      find_model(name);
      break;
    case Axis::cluster:
      find_cluster(with_nodes(name, 1));  // the number of nodes of a single GPU type is a separate axis
      break;
    case Axis::data:
      check_data(name);  // reports a bad record once here, and not in each cell
      break;
    case Axis::options:
      sweep_search_options(cell);
      sweep_scheduler(cell);
      break;
    case Axis::modalities:
      sweep_preprocess_options(cell, ModelSpec{});
      break;
    case Axis::planner:
      find_planner(name);
      break;
    case Axis::scheduler:
      make_scheduler(name);
      break;
    case Axis::pipeline_schedule:
    case Axis::recompute:
      sweep_plan_options(cell);
      break;
    case Axis::conditions:
      sweep_conditions(cell);
      break;
    case Axis::nodes:
    case Axis::intra_node_bandwidth:
    case Axis::inter_node_bandwidth:
    case Axis::gbs:
    case Axis::iterations:
    case Axis::seed:
      break;  // numbers, not names
  }
}

Cell read_checked(Axis axis, const JsonValue& value) {
  Cell cell = read_value(axis, value);
  if (const auto* name = std::get_if<std::string>(&cell)) {
    try {
      check_name(axis, *name);
    } catch (const Error& error) {
      value.refuse(error.what());
    }
  }
  return cell;
}

/// Reads the values of one axis; a value may occur only once.
std::vector<Cell> read_values(Axis axis, const JsonValue& list) {
  std::vector<Cell> cells;
  for (const JsonValue& value : list.elements()) {
    cells.push_back(read_checked(axis, value));
    if (std::count(cells.begin(), cells.end(), cells.back()) > 1) {
      value.refuse(fmt::format("expected each value once, found {} again", plain_text(cells.back())));
    }
  }
  if (cells.empty()) list.refuse_type("an array of at least one value");
  return cells;
}

std::string_view name_of(Axis axis) {
  return sweep_columns()[index_of(axis)].column.key;
}

/// Returns the names of the axes that a file may omit, or of the others.
std::vector<std::string_view> axes_with_usual_value(bool has_one) {
  std::vector<std::string_view> names;
  for (const SweepColumn& c : std::span(sweep_columns()).first(kAxes)) {
    if ((c.usual != Cell()) == has_one) names.push_back(c.column.key);
  }
  return names;
}

using AxisValues = std::array<std::vector<Cell>, kAxes>;

AxisValues read_axes(const JsonValue& axes) {
  axes.require_keys(axes_with_usual_value(false), axes_with_usual_value(true));
  AxisValues values;
  for (std::size_t i = 0; i < kAxes; ++i) {
    const Axis axis = static_cast<Axis>(i);
    values[i] = axes.has(name_of(axis)) ? read_values(axis, axes.at(name_of(axis)))
                                        : std::vector<Cell>{sweep_columns()[i].usual};
  }
  for (const Cell& cluster : values[index_of(Axis::cluster)]) {
    const std::string& name = std::get<std::string>(cluster);
    if (axes.has(name_of(Axis::nodes)) && says_nodes(name))
      axes.at(name_of(Axis::nodes))
          .refuse("expected no number of nodes with '{}', which already gives it", name);
  }
  for (const Cell& gbs : values[index_of(Axis::gbs)]) {
    for (const Cell& iterations : values[index_of(Axis::iterations)]) {
      if (std::get<std::int64_t>(gbs) * std::get<std::int64_t>(iterations) <= kMaxSamplesInAll) continue;
      axes.at("iterations")
          .refuse(fmt::format("expected at most {} samples in all, found {} iterations of gbs {}",
                              kMaxSamplesInAll, plain_text(iterations), plain_text(gbs)));
    }
  }
  return values;
}

/// Excludes cells that match a listed value on every named axis.
using Exclusion = std::array<std::vector<Cell>, kAxes>;

Exclusion read_exclusion(const JsonValue& rule, const AxisValues& axes) {
  std::vector<std::string_view> keys = axes_with_usual_value(false);
  for (const std::string_view key : axes_with_usual_value(true)) keys.push_back(key);
  rule.require_keys({}, keys);
  Exclusion exclusion;
  bool any = false;
  for (std::size_t i = 0; i < kAxes; ++i) {
    const Axis axis = static_cast<Axis>(i);
    if (!rule.has(name_of(axis))) continue;
    any = true;
    for (const JsonValue& value : rule.at(name_of(axis)).elements()) {
      exclusion[i].push_back(read_value(axis, value));
      if (std::count(axes[i].begin(), axes[i].end(), exclusion[i].back()) > 0) continue;
      value.refuse(fmt::format("expected a value of the axis '{}', found {}", name_of(axis),
                               plain_text(exclusion[i].back())));
    }
    if (exclusion[i].empty()) rule.at(name_of(axis)).refuse_type("an array of at least one value");
  }
  if (!any) rule.refuse_type("an object with at least one axis");
  return exclusion;
}

bool excludes(const Exclusion& exclusion, const SweepRow& cell) {
  for (std::size_t i = 0; i < kAxes; ++i) {
    const std::vector<Cell>& values = exclusion[i];
    if (!values.empty() && std::count(values.begin(), values.end(), cell.cells[i]) == 0) return false;
  }
  return true;
}

std::size_t combinations(const AxisValues& values, const JsonValue& axes) {
  std::size_t count = 1;
  for (const std::vector<Cell>& axis : values) {
    count *= axis.size();
    if (count > kMaxCells) axes.refuse(fmt::format("expected at most {} cells, found more", kMaxCells));
  }
  return count;
}

/// Adds the seeds that follow each listed one, in order and without duplicates.
void add_seeds(std::vector<Cell>& axis, int seeds) {
  const std::vector<Cell> listed = axis;
  for (const Cell& first : listed) {
    for (int s = 1; s < seeds; ++s) {
      const Cell seed = std::get<std::int64_t>(first) + s;
      if (std::ranges::find(axis, seed) == axis.end()) axis.push_back(seed);
    }
  }
}

/// Returns the cell with this index in the product, by mixed-radix digits; the last axis varies fastest.
SweepRow nth_cell(const AxisValues& values, std::size_t index) {
  SweepRow cell;
  for (std::size_t i = kAxes; i-- > 0;) {
    cell.cells[i] = values[i][index % values[i].size()];
    index /= values[i].size();
  }
  return cell;
}

/// Returns the contents behind a name: the JSON of a preset, or a file; for joined presets, all of them.
std::string text_behind(std::string_view kind, const std::string& name) {
  if (kind == "clusters" && says_nodes(name)) return cluster_text(name);
  for (const Preset& preset : presets()) {
    if (preset.kind == kind && preset.name == name) return std::string(preset.json);
  }
  return read_text_file(name);
}

/// Returns the number of nodes of each cluster that specifies it.
std::map<std::string, std::int64_t> own_node_counts(const AxisValues& values) {
  std::map<std::string, std::int64_t> counts;
  for (const Cell& cluster : values[index_of(Axis::cluster)]) {
    const std::string& name = std::get<std::string>(cluster);
    if (says_nodes(name)) counts[name] = find_cluster(name).nodes;
  }
  return counts;
}

/// Returns hashes that reveal when a file has been edited since it was read before.
std::map<std::string, std::string> fingerprints(const AxisValues& values) {
  std::map<std::string, std::string> prints;
  for (const auto& [axis, kind] : {std::pair{Axis::data, "data"}, std::pair{Axis::model, "models"},
                                   std::pair{Axis::cluster, "clusters"}}) {
    for (const Cell& value : values[index_of(axis)]) {
      const std::string& name = std::get<std::string>(value);
      prints[name] = fmt::format("{:016x}", stable_hash(text_behind(kind, name)));
    }
  }
  return prints;
}

/// Rejects search options in cells of planners other than search, as 'dflop plan' does.
void check_planners(const JsonValue& axes, const std::vector<SweepRow>& cells) {
  std::set<std::pair<std::string, std::string>> checked;
  for (const SweepRow& cell : cells) {
    const std::string& planner = cell.text(Axis::planner);
    if (!checked.emplace(planner, cell.text(Axis::options)).second || find_planner(planner).searches)
      continue;
    try {
      refuse_given(
          step_values(cell), search_only_options(),
          fmt::format("works only with the planner search, found '{}'; 'exclude' leaves such cells out",
                      planner));
    } catch (const Error& error) {
      axes.at(name_of(Axis::options)).refuse(error.what());
    }
  }
}

}  // namespace

SweepSpec parse_sweep_spec(std::string_view json, const std::string& file, int seeds) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root("dflop.sweep", 1);
  root.require_keys({"schema", "version", "axes"}, {"exclude"});
  AxisValues values = read_axes(root.at("axes"));
  add_seeds(values[index_of(Axis::seed)], seeds);
  std::vector<Exclusion> exclusions;
  if (root.has("exclude")) {
    for (const JsonValue& rule : root.at("exclude").elements()) {
      exclusions.push_back(read_exclusion(rule, values));
    }
  }
  SweepSpec spec{std::string(json), {}, fingerprints(values)};
  const std::map<std::string, std::int64_t> own_nodes = own_node_counts(values);
  const std::size_t count = combinations(values, root.at("axes"));
  for (std::size_t i = 0; i < count; ++i) {
    SweepRow cell = nth_cell(values, i);
    const bool excluded = std::any_of(exclusions.begin(), exclusions.end(),
                                      [&](const Exclusion& e) { return excludes(e, cell); });
    if (excluded) continue;
    const auto nodes = own_nodes.find(cell.text(Axis::cluster));
    if (nodes != own_nodes.end()) cell[Axis::nodes] = nodes->second;
    spec.cells.push_back(std::move(cell));
  }
  check_planners(root.at("axes"), spec.cells);
  if (spec.cells.empty())
    root.at("exclude").refuse(
        "expected at least one cell to remain, found all "
        "excluded");
  return spec;
}

std::vector<PlanGroup> plan_groups(std::vector<SweepRow> cells) {
  std::vector<PlanGroup> groups;
  for (SweepRow& cell : cells) {
    const bool same =
        !groups.empty() && std::ranges::equal(groups.back().front().plan_axes(), cell.plan_axes());
    if (!same) groups.emplace_back();
    groups.back().push_back(std::move(cell));
  }
  return groups;
}

std::vector<PlanGroup> shard(std::vector<PlanGroup> groups, int index, int count) {
  std::vector<PlanGroup> part;
  for (std::size_t g = static_cast<std::size_t>(index - 1); g < groups.size();
       g += static_cast<std::size_t>(count)) {
    part.push_back(std::move(groups[g]));
  }
  return part;
}

PlanOptions sweep_plan_options(const SweepRow& cell) {
  return read_plan_options(step_values(cell));
}

bool sweep_best_parts(const SweepRow& cell) {
  return step_values(cell)["best-parts"].as<bool>();
}

SearchOptions sweep_search_options(const SweepRow& cell, const ModelSpec* model) {
  const Values values = step_values(cell);
  SearchOptions options = read_search_options(values);
  options.wish = read_wish(values);
  if (model != nullptr) read_padding(values, *model, options);
  options.scheduler = "lpt";  // the cells of a plan have different schedulers
  return options;
}

SchedulerChoice sweep_scheduler(const SweepRow& cell) {
  SchedulerChoice choice = read_scheduler(step_values(cell));
  choice.name = cell.text(Axis::scheduler);
  choice.keep_within_memory();
  return choice;
}

PreprocessOptions sweep_preprocess_options(const SweepRow& cell, const ModelSpec& model) {
  std::vector<std::string> arguments{"--data", "-"};  // required by the parser; the data is read elsewhere
  if (cell.text(Axis::modalities) != kAllModalities) {
    arguments.insert(arguments.end(), {"--modalities", cell.text(Axis::modalities)});
  }
  const Values steps = step_values(cell);
  if (const auto longest = read_optional_integer(steps, "max-tokens", 1, kMaxTokensOfSample))
    arguments.insert(arguments.end(), {"--max-tokens", std::to_string(*longest)});
  if (is_set(steps, "drop-long")) arguments.emplace_back("--drop-long");
  return read_preprocess_options(parse_options([](Options& o) { add_data_options(o); }, arguments), model,
                                 static_cast<std::uint64_t>(cell.whole(Axis::seed)));
}

std::function<void(ClusterSpec&)> sweep_cluster_change(const SweepRow& cell) {
  return [intra = cell.real(Axis::intra_node_bandwidth),
          inter = cell.real(Axis::inter_node_bandwidth)](ClusterSpec& cluster) {
    cluster.intra_node.bandwidth_bytes_per_s *= intra;
    cluster.inter_node.bandwidth_bytes_per_s *= inter;
    cluster.software.node_ring_bandwidth_bytes_per_s *= inter;
  };
}

WhatIf sweep_conditions(const SweepRow& cell) {
  const std::string& conditions = cell.text(Axis::conditions);
  const Values values = parse_options(
      add_conditions, conditions == kNoConditions ? std::vector<std::string>() : split_arguments(conditions));
  if (!values["seed"].defaulted())
    refuse_input("", "option '--seed': not allowed in a sweep, which has an axis 'seed'");
  WhatIf what_if = read_what_if(values);
  what_if.seed = static_cast<std::uint64_t>(cell.whole(Axis::seed));
  if (what_if.role == GpuRole::each && what_if.repeat > 1)
    refuse_input(
        "", "option '--repeat': expected 1 with gpu=each, which already runs once for each GPU, found {}",
        what_if.repeat);
  return what_if;
}

}  // namespace dflop
