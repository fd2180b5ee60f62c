// A grid has plans to be compared on one device: schema "dflop.grid", version 1.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/plan.hpp"

namespace dflop {

/// A GridPlan is a plan of a grid: a file's, or one in short form.
struct GridPlan {
  std::string name;
  std::string file;  ///< of a plan, as the grid names it: seen from the grid's folder; empty: `plan`
  /// This plan is complete but for the layers of its stages, which are empty: how many there are is the
  /// model's to say. A uniform one has the same tp, pp and dp in both modules.
  Plan plan;

  bool operator==(const GridPlan&) const = default;
};

struct PlanGrid {
  std::string model;
  std::string cluster;
  int gbs = 0;
  std::vector<GridPlan> plans;  ///< at least one, each of another name

  bool operator==(const PlanGrid&) const = default;
};

/// Reads a grid. A short form has `llm` {tp, pp, dp} and `microbatches`, and for ranks of the encoder's own
/// `encoder`; without it one pipeline has both. Beside them it may have `schedule` (1f1b), `recomputation`
/// (none), `zero1` (true) and `sequence_parallel` (false).
/// @throws Error (input) naming the key, what was expected and found; also for a gbs that leaves microbatches
/// without a sample and for a name that stands twice.
PlanGrid parse_plan_grid(std::string_view json, const std::string& file);

}  // namespace dflop
