#include "experiments/studies/explain.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/support/parallel.hpp"
#include "experiments/cli/say.hpp"
#include "sim/engine.hpp"

namespace dflop {
namespace {

/// A PathColumn is a column of the path table.
struct PathColumn {
  PathLinkKind kind;
  Op op;  ///< for compute links only
  const char* key;
  const char* title;
};

constexpr std::array<PathColumn, 8> kPathColumns = {
    {{PathLinkKind::compute, Op::forward, "forward_s", "forward %"},
     {PathLinkKind::compute, Op::backward, "backward_s", "backward %"},
     {PathLinkKind::compute, Op::backward_input, "backward_input_s", "backward input %"},
     {PathLinkKind::compute, Op::backward_weight, "backward_weight_s", "backward weight %"},
     {PathLinkKind::compute, Op::optimizer_step, "optimizer_s", "optimizer %"},
     {PathLinkKind::message, Op::send, "messages_s", "messages %"},
     {PathLinkKind::collective, Op::all_reduce, "collectives_s", "collectives %"},
     {PathLinkKind::pause, Op::forward, "pauses_s", "pauses %"}}};

std::size_t column_of(const PathShare& share) {
  const auto column = std::find_if(kPathColumns.begin(), kPathColumns.end(), [&](const PathColumn& c) {
    return c.kind == share.kind && (c.kind != PathLinkKind::compute || c.op == share.op);
  });
  return static_cast<std::size_t>(column - kPathColumns.begin());
}

/// A PathRow has the time of a part of the path in each column, and its number of links.
struct PathRow {
  std::array<Nanoseconds, kPathColumns.size()> of{};
  std::int64_t links = 0;

  void add(const PathShare& share) {
    of[column_of(share)] += share.duration;
    links += share.links;
  }
};

double seconds(Nanoseconds time) {
  return Seconds(time).count();
}

int decimals_of(const Explanation& explanation) {
  return explanation.timeline.makespan < std::chrono::seconds(1) ? 6 : 4;
}

/// Returns 1 / makespan; 0 if the makespan is 0.
double per_makespan(const Explanation& explanation) {
  const double makespan = seconds(explanation.timeline.makespan);
  return makespan > 0 ? 1 / makespan : 0;
}

std::string name_of(const Relaxation& relaxation, const Timeline& timeline) {
  switch (relaxation.kind) {
    case Relaxation::Kind::free_stage:
      break;
    case Relaxation::Kind::free_messages:
      return "messages free";
    case Relaxation::Kind::free_collectives:
      return "collectives free";
    case Relaxation::Kind::free_communication:
      return "messages and collectives free";
    case Relaxation::Kind::no_stragglers:
      return "dp ranks equal in each microbatch";
    case Relaxation::Kind::balanced:
      return "all microbatches of a stage equal";
    case Relaxation::Kind::no_bubbles:
      return "no bubbles (busiest rank)";
  }
  return "compute of " + timeline.stages[relaxation.stage] + " free";
}

std::string name_of(const PathLink& link) {
  const std::string microbatch = link.microbatch >= 0 ? fmt::format(" mb {}", link.microbatch) : "";
  switch (link.kind) {
    case PathLinkKind::message:
      return fmt::format("message {}->{}{}", link.stage, link.to_stage, microbatch);
    case PathLinkKind::collective:
      return fmt::format("stage {} {}", link.stage, to_string(link.op));
    case PathLinkKind::pause:
      return fmt::format("stage {} paused", link.stage);
    case PathLinkKind::compute:
      break;
  }
  return fmt::format("stage {} {}{}", link.stage, to_string(link.op), microbatch);
}

constexpr double kGiB = 0x1p-30;

std::vector<Column> memory_columns() {
  return {{"peak_time_s", "at s", 4},
          {"parameters_bytes", "parameters GiB", 2, kGiB},
          {"gradients_bytes", "gradients GiB", 2, kGiB},
          {"optimizer_bytes", "optimizer GiB", 2, kGiB},
          {"peak_activations_bytes", "activations GiB", 2, kGiB},
          {"peak_buffers_bytes", "buffers GiB", 2, kGiB}};
}

std::vector<Cell> memory_cells(const GroupUsage& group) {
  return {group.peak_time,
          group.model_state.parameters,
          group.model_state.gradients,
          group.model_state.optimizer,
          group.peak_activations,
          group.peak_buffers};
}

}  // namespace

Explanation explain(const Program& program, const ProgramCosts& costs, const Conditions& conditions) {
  Explanation out;
  out.timeline = simulate(program, costs, Detail::spans, conditions);
  out.path = critical_path(program, costs, out.timeline, conditions);
  const std::vector<Relaxation> items = relaxations(program);
  out.gains.resize(items.size());
  constexpr std::size_t kBlock = 16;  // iterations between updates of the progress bar
  Progress progress("explaining");
  for (std::size_t begin = 0; begin < items.size(); begin += kBlock) {
    const std::size_t size = std::min(kBlock, items.size() - begin);
    parallel_for(size, [&](std::size_t k) {
      const std::size_t i = begin + k;
      out.gains[i] = {items[i], relaxed_makespan(program, costs, items[i], conditions)};
    });
    progress.update(static_cast<std::int64_t>(begin + size), static_cast<std::int64_t>(items.size()));
  }
  std::stable_sort(out.gains.begin(), out.gains.end(),
                   [](const Gain& a, const Gain& b) { return a.makespan < b.makespan; });
  return out;
}

std::size_t slowest_iteration(const std::vector<Timeline>& iterations) {
  const auto slowest =
      std::max_element(iterations.begin(), iterations.end(),
                       [](const Timeline& a, const Timeline& b) { return a.makespan < b.makespan; });
  return static_cast<std::size_t>(slowest - iterations.begin());
}

std::string explained_iteration(const Explanation& explanation) {
  if (explanation.iterations == 1) return "the iteration";
  return fmt::format("iteration {}, the slowest of {}", explanation.iteration, explanation.iterations);
}

Table path_table(const Explanation& explanation) {
  std::map<std::uint16_t, PathRow> rows;
  PathRow all;
  for (const PathShare& share : path_shares(explanation.path)) {
    rows[share.stage].add(share);
    all.add(share);
  }
  const double percent = 100 * per_makespan(explanation);
  Table table;
  table.columns = {{"stage", "stage"}, {"links", "links"}};
  for (std::size_t c = 0; c < kPathColumns.size(); ++c) {
    if (all.of[c] > Nanoseconds(0)) {
      table.columns.push_back({kPathColumns[c].key, kPathColumns[c].title, 1, percent});
    }
  }
  table.columns.push_back({"share", "all %", 1, 100});
  table.columns.push_back({"all_s", "all s", decimals_of(explanation)});
  const auto add_row = [&](const std::string& name, const PathRow& row) {
    std::vector<Cell> cells = {name, row.links};
    Nanoseconds sum{0};
    for (std::size_t c = 0; c < row.of.size(); ++c) {
      if (all.of[c] > Nanoseconds(0)) cells.emplace_back(row.of[c]);
      sum += row.of[c];
    }
    cells.emplace_back(seconds(sum) * per_makespan(explanation));
    cells.emplace_back(sum);
    table.rows.push_back(std::move(cells));
  };
  for (const auto& [stage, row] : rows) add_row(explanation.timeline.stages[stage], row);
  add_row("all", all);
  return table;
}

Table gains_table(const Explanation& explanation) {
  const int decimals = decimals_of(explanation);
  Table table;
  table.columns = {{"change", "if"},
                   {"makespan_s", "s/iteration", decimals},
                   {"gain_s", "gain s", decimals},
                   {"gain", "gain %", 1, 100}};
  for (const Gain& gain : explanation.gains) {
    const double gained = seconds(explanation.timeline.makespan - gain.makespan);
    table.rows.push_back({name_of(gain.relaxation, explanation.timeline), gain.makespan, gained,
                          gained * per_makespan(explanation)});
  }
  return table;
}

std::vector<std::string> small_gains(const Explanation& explanation) {
  constexpr double kMuch = 0.3;    // min fraction of the path
  constexpr double kLittle = 0.5;  // max gain as a fraction of the time on the path
  const Timeline& timeline = explanation.timeline;
  const double per_s = per_makespan(explanation);
  std::map<int, double> on_path;
  for (const PathShare& share : path_shares(explanation.path)) {
    if (share.kind == PathLinkKind::compute) on_path[share.stage] += seconds(share.duration) * per_s;
  }
  std::vector<std::string> lines;
  for (const Gain& gain : explanation.gains) {
    if (gain.relaxation.kind != Relaxation::Kind::free_stage) continue;
    const int stage = gain.relaxation.stage;
    const double share = on_path[stage];
    const double gained = seconds(timeline.makespan - gain.makespan) * per_s;
    if (share < kMuch || gained > kLittle * share) continue;
    const GroupUsage* busiest = nullptr;
    for (const GroupUsage& group : timeline.groups) {
      if (group.stage != stage && (busiest == nullptr || group.busy > busiest->busy)) busiest = &group;
    }
    std::string line = fmt::format(
        "compute of {} is {:.0f} % of the path, but without it the iteration "
        "would gain only {:.1f} %: ",
        timeline.stages[stage], 100 * share, 100 * gained);
    const double busy = busiest == nullptr ? 0 : seconds(busiest->busy) / seconds(gain.makespan);
    line += busy >= kMuch ? fmt::format(
                                "{} then takes longest: its rank {} is busy for {:.0f} % of the remaining "
                                "time",
                                timeline.stages[busiest->stage], busiest->first_rank, 100 * busy)
                          : "another chain, through other stages and messages, is nearly as long";
    lines.push_back(line);
  }
  return lines;
}

std::string explanation_text(const Explanation& explanation) {
  return fmt::format("\ncritical path of {}, by stage:\n\n{}\nwhat {} would gain:\n\n{}",
                     explained_iteration(explanation), terminal_text(path_table(explanation)),
                     explanation.iterations == 1 ? "it" : "that iteration",
                     terminal_text(gains_table(explanation))) +
         (small_gains(explanation).empty()
              ? ""
              : fmt::format("\n{}\n", fmt::join(small_gains(explanation), "\n")));
}

nlohmann::ordered_json explanation_json(const Explanation& explanation) {
  nlohmann::ordered_json out;
  out["iteration"] = explanation.iteration;
  out["makespan_s"] = seconds(explanation.timeline.makespan);
  out["critical_path"] = json_of(path_table(explanation));
  out["gains"] = json_of(gains_table(explanation));
  return out;
}

std::vector<PathSlice> path_slices(const std::optional<Explanation>& explanation) {
  std::vector<PathSlice> slices;
  if (!explanation) return slices;
  for (const PathLink& link : explanation->path) {
    slices.push_back(
        {static_cast<std::int64_t>(explanation->iteration), name_of(link), link.start, link.duration});
  }
  return slices;
}

FullestRank fullest_rank(std::span<const Timeline> iterations) {
  FullestRank fullest;
  Bytes most{-1};
  for (std::size_t k = 0; k < iterations.size(); ++k) {
    const std::vector<Bytes> memory = gpu_memory(iterations[k]);
    for (std::size_t g = 0; g < iterations[k].groups.size(); ++g) {
      const GroupUsage& group = iterations[k].groups[g];
      const Bytes bytes = most_of(memory, iterations[k], group);
      if (bytes < most) continue;
      // On a shared GPU, the rank that needs more memory represents the GPU. In all other cases the first of
      // equals counts.
      const bool same_gpu = bytes == most && iterations[k].shared_gpus > 0 && fullest.iteration == k;
      if (bytes == most && !same_gpu) continue;
      if (same_gpu && group.peak_memory <= iterations[k].groups[fullest.group].peak_memory) continue;
      most = bytes;
      fullest = {k, g};
    }
  }
  return fullest;
}

std::string with_other_module(const Timeline& timeline, const GroupUsage& group) {
  if (timeline.shared_gpus == 0) return "";
  const Bytes all = most_of(gpu_memory(timeline), timeline, group);
  return fmt::format("; with the {:.1f} GiB of the other rank on its GPU, it is {:.1f}",
                     in_gib(all - group.peak_memory), in_gib(all));
}

Table fullest_rank_table(std::span<const Timeline> iterations) {
  const FullestRank fullest = fullest_rank(iterations);
  const Timeline& timeline = iterations[fullest.iteration];
  const GroupUsage& group = timeline.groups[fullest.group];
  Table table;
  table.columns = {{"iteration", "iteration"}, {"stage", "stage"}, {"dp_rank", "dp"}, {"first_rank", "rank"}};
  table.rows = {{fullest.iteration, timeline.stages[group.stage], group.dp_rank, group.first_rank}};
  for (const Column& column : memory_columns()) table.columns.push_back(column);
  for (const Cell& cell : memory_cells(group)) table.rows[0].push_back(cell);
  table.columns.push_back({"peak_memory_bytes", "peak GiB", 2, kGiB});
  table.rows[0].emplace_back(group.peak_memory);
  if (timeline.shared_gpus > 0) {
    table.columns.push_back({"gpu_memory_bytes", "GPU GiB", 2, kGiB});
    table.rows[0].emplace_back(most_of(gpu_memory(timeline), timeline, group));
  }
  return table;
}

void add_memory_columns(Table& groups, const Timeline& timeline) {
  for (const Column& column : memory_columns()) groups.columns.push_back(column);
  for (std::size_t g = 0; g < groups.rows.size(); ++g) {
    for (const Cell& cell : memory_cells(timeline.groups[g])) groups.rows[g].push_back(cell);
  }
}

std::string describe_fullest_rank(std::span<const Timeline> iterations) {
  const FullestRank fullest = fullest_rank(iterations);
  const Timeline& timeline = iterations[fullest.iteration];
  const GroupUsage& group = timeline.groups[fullest.group];
  return fmt::format(
      "rank {} ({}) needs {:.1f} GiB at {:.4f} s of iteration {}: parameters {:.1f}, gradients {:.1f}, "
      "optimizer {:.1f}, activations {:.1f}, buffers {:.1f}{}",
      group.first_rank, timeline.stages[group.stage], in_gib(group.peak_memory), seconds(group.peak_time),
      fullest.iteration, in_gib(group.model_state.parameters), in_gib(group.model_state.gradients),
      in_gib(group.model_state.optimizer), in_gib(group.peak_activations), in_gib(group.peak_buffers),
      with_other_module(timeline, group));
}

}  // namespace dflop
