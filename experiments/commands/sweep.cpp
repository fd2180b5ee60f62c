// dflop sweep runs all combinations of what-if values.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "experiments/cli/command.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/options/provenance_options.hpp"
#include "experiments/presets/presets.hpp"
#include "experiments/sweep/spec.hpp"
#include "experiments/sweep/store.hpp"
#include "experiments/trust/assumptions.hpp"
#include "solver/planners/planners.hpp"
#include "traces/text/csv.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

constexpr int kMaxShards = 100'000;
constexpr int kMaxSeedsOfSweep = 1000;

struct Shard {
  int index = 1;
  int count = 1;
};

/// Reads "2/8".
Shard read_shard(const Values& values) {
  const std::optional<std::string> text = read_text(values, "shard");
  if (!text) return {};
  const std::size_t slash = text->find('/');
  Shard shard;
  if (slash == std::string::npos || !parse_number(std::string_view(*text).substr(0, slash), shard.index) ||
      !parse_number(std::string_view(*text).substr(slash + 1), shard.count) || shard.count < 1 ||
      shard.count > kMaxShards || shard.index < 1 || shard.index > shard.count) {
    refuse_value("shard", fmt::format("I/N with 1 <= I <= N <= {}", kMaxShards), *text);
  }
  return shard;
}

std::size_t cells_of(const std::vector<PlanGroup>& groups) {
  std::size_t count = 0;
  for (const PlanGroup& group : groups) count += group.size();
  return count;
}

/// Removes finished cells, and groups that become empty.
void remove_finished(std::vector<PlanGroup>& groups, const std::set<std::string>& finished) {
  for (PlanGroup& group : groups) {
    std::erase_if(group, [&](const SweepRow& cell) { return finished.count(sweep_key(cell)) > 0; });
  }
  std::erase_if(groups, [](const PlanGroup& group) { return group.empty(); });
}

/// Counts are the numbers of completed cells by status.
struct Counts {
  std::int64_t ok = 0;
  std::int64_t infeasible = 0;
  std::int64_t failed = 0;

  void add(const SweepRow& cell) {
    ++(cell.has_status("ok") ? ok : cell.has_status("infeasible") ? infeasible : failed);
  }
  std::int64_t all() const { return ok + infeasible + failed; }
};

Counts run_and_record(const std::vector<PlanGroup>& groups, SweepStore& store) {
  Counts counts;
  std::mutex mutex;
  Progress progress("sweeping");
  const auto total = static_cast<std::int64_t>(cells_of(groups));
  run_sweep(groups, [&](const SweepRow& cell) {
    store.record(cell);
    const std::lock_guard lock(mutex);
    counts.add(cell);
    progress.update(counts.all(), total);
  });
  return counts;
}

/// Notes that a rank number has different roles in different plans, if a sweep has several plans and refers
/// to a rank.
void note_ranks(const std::vector<SweepRow>& cells) {
  std::set<std::string> told;
  for (const SweepRow& cell : cells) {
    const std::string& conditions = cell.text(Axis::conditions);
    const auto other_plan = [&](const SweepRow& other) {
      return !std::ranges::equal(other.plan_axes(), cell.plan_axes());
    };
    if (conditions == kNoConditions || !told.insert(conditions).second ||
        !sweep_conditions(cell).names_ranks || std::ranges::none_of(cells, other_plan))
      continue;
    say("dflop: note: '{}': a rank number means different roles in different plans; use gpu=worst or "
        "gpu=each for a fair comparison\n",
        conditions);
  }
}

/// Notes which planners of a sweep choose fewer parts of a plan than the others.
void note_parts(const std::vector<SweepRow>& cells) {
  std::set<std::string> leaving;
  bool others_choose = false;
  for (const SweepRow& cell : cells) {
    const std::string& planner = cell.text(Axis::planner);
    if (!find_planner(planner).leaves_parts) {
      others_choose = true;
    } else if (!sweep_best_parts(cell)) {
      leaving.insert(planner);
    }
  }
  if (leaving.empty() || !others_choose) return;
  say("dflop: note: {} use the given recomputation, placement and gradient buckets; the other planners "
      "choose them. '--best-parts' in a cell's options chooses them with random microbatches, and the axis "
      "recompute makes a cell for each recomputation ('dflop compare' takes the best)\n",
      fmt::join(leaving, ", "));
}

AssumptionBlock sweep_assumptions(const std::vector<SweepRow>& cells) {
  AssumptionBlock block;
  std::set<std::string> clusters;
  std::set<std::int64_t> seeds;
  for (const SweepRow& cell : cells) {
    seeds.insert(cell.whole(Axis::seed));
    const std::string& cluster = cell.text(Axis::cluster);
    if (clusters.insert(cluster).second) assume_preset(block, cluster);
  }
  block.add("layout",
            "plans with * have modules that share GPUs, which is not confirmed on any GPU; a spec with an "
            "order or parallelism excludes them");
  const auto searches = [](const SweepRow& cell) { return find_planner(cell.text(Axis::planner)).searches; };
  if (std::ranges::any_of(cells, searches))
    block.add("search",
              "plans are made for microbatches of lpt, whatever the scheduler of the cells; 'plan' and "
              "'compare' choose the final plan with auto, and often find a faster one");
  block.add("memory",
            "plans with ! do not fit some further batches of the data: a run that draws one runs out of "
            "memory (the column reason says how much memory such a batch needs)");
  block.add("seeds",
            seeds.size() > 1
                ? fmt::format("{} seeds; 'sweep export --over-seeds' prints means with 95 % intervals",
                              seeds.size())
                : "one seed says nothing about the spread over seeds (--seeds 3)",
            {{"seeds", seeds.size()}});
  block.add("time",
            "iterations are only training steps; '--overhead' of 'compare' adds other time to the hours");
  return block;
}

int run_sweep(const Values& values) {
  const Format format = read_format(values);
  const Shard part = read_shard(values);
  const auto spec_path = values["spec"].as<std::string>();
  const std::string out = read_output(values, "out").value();
  const int seeds = static_cast<int>(read_integer(values, "seeds", 1, kMaxSeedsOfSweep));
  SweepSpec spec = parse_sweep_spec(read_text_file(spec_path), spec_path, seeds);
  note_ranks(spec.cells);
  note_parts(spec.cells);
  const AssumptionBlock assumptions = sweep_assumptions(spec.cells);
  std::vector<PlanGroup> groups = shard(plan_groups(std::move(spec.cells)), part.index, part.count);
  const std::size_t cells = cells_of(groups);
  SweepStore store(out, spec, made_here(values), values["redo-changed"].as<bool>());
  if (store.taken_out() > 0) {
    say("dflop: {} cells are run again, because their inputs have changed\n", store.taken_out());
  }
  remove_finished(groups, store.finished(!values["retry-failed"].as<bool>()));
  const std::size_t left = cells_of(groups);
  const Counts counts = run_and_record(groups, store);
  const Table table{{{"cells", "cells"},
                     {"finished_before", "finished before"},
                     {"run", "run"},
                     {"ok", "ok"},
                     {"infeasible", "infeasible"},
                     {"failed", "failed"}},
                    {{cells, cells - left, counts.all(), counts.ok, counts.infeasible, counts.failed}}};
  print_table(table, format);
  say("{}", assumptions.text());
  if (counts.failed == 0) return 0;
  say("dflop: {} cells failed; 'dflop sweep export' says why\n", counts.failed);
  return 1;
}

}  // namespace

Command sweep_command() {
  Command command{
      .name = "sweep",
      .task = Task::explain,
      .summary = "run a grid of what-if values",
      .description =
          R"(Plans, schedules and simulates every combination of the values in a file, on all cores, and
stores each finished combination, a cell, in an SQLite database. If the run ends early, run it again with the
same file: it runs only the missing cells. A longer file adds its cells. The numbers of a cell are the same as
from 'dflop plan', 'dflop schedule' and 'dflop simulate'. An infeasible cell is also a result. Prints how many
cells were run. If some cells fail, the others still run, and the exit code is 1.

docs/sweep.md describes the file: axes such as model, cluster, nodes, data, gbs, planner, scheduler,
inter_node_bandwidth and conditions, each with an array of values.)",
      .example = "dflop sweep --spec traces/sweeps/what-if.json --out sweep.sqlite",
      .run = run_sweep,
  };
  command.options.add({
      {"spec", text("FILE").required(), "file with the grid to run"},
      {"out", text("FILE").required(),
       "database to create or continue; several processes may write to it at the same time"},
      {"seeds", whole("K", 1), "run each cell with K consecutive seeds, starting from each seed in the file"},
      {"shard", text("I/N"),
       "run only part I of N, counted from 1, as in an array job; shards may use one database or several"},
      {"redo-changed", flag(),
       "run cells again if their data set, model or cluster has changed; keep the others"},
      {"retry-failed", flag(), "run failed cells again"},
  });
  return command;
}

}  // namespace dflop
