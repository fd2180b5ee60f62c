// A SweepSpec says what a sweep runs, a file of schema "dflop.sweep", version 1; run_sweep() runs it. A cell
// is what `dflop plan`, `dflop schedule` and `dflop simulate` give, one by one.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/iteration/planner.hpp"
#include "experiments/studies/options.hpp"
#include "experiments/studies/what_if.hpp"
#include "experiments/sweep/row.hpp"

namespace dflop {

/// A SweepSpec is every combination of the values of all axes, without those that the file excludes.
struct SweepSpec {
  std::string text;             ///< the file as it is
  std::vector<SweepRow> cells;  ///< ordered by the axes' values as the file lists them, the last axis fastest
  /// These are the data sets, models and clusters: name to fingerprint of the bytes behind it.
  std::map<std::string, std::string> inputs;
};

/// Reads a spec. Of each of its seeds, `seeds` consecutive ones from it on are in the sweep.
/// @throws Error (input) naming the key: for an unknown one, an axis that is missing or has no value or one
/// twice, a name that is not known, a value out of range, a file that is not there, no cell left or too many.
SweepSpec parse_sweep_spec(std::string_view json, const std::string& file, int seeds = 1);

/// A PlanGroup is cells that share a plan: equal in the axes before the scheduler. They stand together in a
/// spec.
using PlanGroup = std::vector<SweepRow>;

/// Returns the groups of the cells, in their order.
std::vector<PlanGroup> plan_groups(std::vector<SweepRow> cells);

/// Returns part `index` of `count`, from 1; together they are all groups, each once.
std::vector<PlanGroup> shard(std::vector<PlanGroup> groups, int index, int count);

/// Returns the options of `dflop plan` that a cell stands for. @throws Error
PlanOptions sweep_plan_options(const SweepRow& cell);
bool sweep_best_parts(const SweepRow& cell);
/// `model` is what --no-padded-heads looks at; null: it is checked and not applied.
SearchOptions sweep_search_options(const SweepRow& cell, const ModelSpec* model = nullptr);
SchedulerChoice sweep_scheduler(const SweepRow& cell);
PreprocessOptions sweep_preprocess_options(const SweepRow& cell, const ModelSpec& model);

/// Scales the links of the cell's cluster.
std::function<void(ClusterSpec&)> sweep_cluster_change(const SweepRow& cell);

/// Returns the conditions of `dflop simulate` that a cell stands for. @throws Error
WhatIf sweep_conditions(const SweepRow& cell);

/// Runs the groups on all cores. `done` gets each cell with its measures, from any thread, one at a time for
/// each thread. A cell that cannot be run has status "failed" and the error as its reason; one without a
/// plan, out of memory or whose run does not end is "infeasible".
/// @throws what `done` throws, after which no more cells begin.
void run_sweep(const std::vector<PlanGroup>& groups, const std::function<void(const SweepRow&)>& done);

}  // namespace dflop
