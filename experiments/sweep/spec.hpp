// A SweepSpec says what a sweep runs; run_sweep() runs it. It comes from a file of schema "dflop.sweep",
// version 1. The results of a cell equal those of running `dflop plan`, `dflop schedule` and `dflop simulate`
// one after the other.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/iteration/planner.hpp"
#include "experiments/studies/scheduling.hpp"
#include "experiments/studies/what_if/what_if.hpp"
#include "experiments/sweep/row.hpp"
#include "traces/preprocess/preprocess.hpp"

namespace dflop {

/// A SweepSpec holds every combination of the values of all axes, except those that the file excludes.
struct SweepSpec {
  std::string text;             ///< the file's text
  std::vector<SweepRow> cells;  ///< in the order of the axes' values in the file; the last axis varies
                                ///< fastest
  /// This maps the name of each data set, model and cluster to a fingerprint of its contents.
  std::map<std::string, std::string> inputs;
};

/// Reads a spec. Replaces each seed s of the spec by the seeds s to s + `seeds` - 1.
/// @throws Error (input) naming the key: for an unknown key or name, an axis that is missing or has no values
/// or repeated ones, a value out of range, a missing file, no cells, or too many cells
SweepSpec parse_sweep_spec(std::string_view json, const std::string& file, int seeds = 1);

/// A PlanGroup holds cells that share a plan: they have the same values on all axes before the scheduler. The
/// cells of a group are adjacent in a spec.
using PlanGroup = std::vector<SweepRow>;

/// Returns the groups of the cells, in their order.
std::vector<PlanGroup> plan_groups(std::vector<SweepRow> cells);

/// Divides the groups into `count` parts and returns part number `index`, counting from 1.
std::vector<PlanGroup> shard(std::vector<PlanGroup> groups, int index, int count);

/// Returns the options of `dflop plan` for a cell. @throws Error
PlanOptions sweep_plan_options(const SweepRow& cell);
bool sweep_best_parts(const SweepRow& cell);
/// Returns the search options of a cell. --no-padded-heads needs `model`; if `model` is null, this option is
/// checked but not applied.
SearchOptions sweep_search_options(const SweepRow& cell, const ModelSpec* model = nullptr);
SchedulerChoice sweep_scheduler(const SweepRow& cell);
PreprocessOptions sweep_preprocess_options(const SweepRow& cell, const ModelSpec& model);

/// Returns the change that multiplies the bandwidths of a cluster's links by the cell's factors.
std::function<void(ClusterSpec&)> sweep_cluster_change(const SweepRow& cell);

/// Returns the conditions of `dflop simulate` for a cell. @throws Error
WhatIf sweep_conditions(const SweepRow& cell);

/// Runs the groups on all cores. Calls `done` for each finished cell, with its measures; several threads may
/// call it at the same time. A cell that cannot run has status "failed" and the error as its reason. A cell
/// has status "infeasible" if it has no plan, runs out of memory, or stalls.
/// @throws what `done` throws; no more cells start after that
void run_sweep(const std::vector<PlanGroup>& groups, const std::function<void(const SweepRow&)>& done);

}  // namespace dflop
