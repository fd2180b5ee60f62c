// This file stores plans, orders of pipeline steps, and grids of plans to compare.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/order/pipeline_order.hpp"
#include "core/plan.hpp"

namespace dflop {

/// Returns a file of schema "dflop.plan", version 1. Newer keys (chunks, gradient_bucket_bytes, placement,
/// optimizer_states, reshard, clip_gradients, frozen, lora_rank, respect_memory) are written only if they
/// differ from their defaults, so that older files and programs keep working with every plan that they can
/// express.
std::string to_json(const Plan& plan);

/// Reads a plan. It ignores "assumptions", which is for people who read the output of 'dflop plan'.
/// validate() of core/plan.hpp checks whether a plan fits a model and a cluster.
/// @throws Error (input) naming the key.
Plan parse_plan(std::string_view json, const std::string& file);

/// Returns {"schema": "dflop.order", "version": 1, "placement": "round-robin" or "v", "ranks": [["F0", "B0"],
/// ...]}: a list of steps for each pipeline rank. step_name() gives the names of the steps. The placement is
/// written if ranks have several chunks.
std::string to_json(const PipelineOrder& order);

/// Reads an order for a pipeline of this shape, and checks it. If the key "placement" is missing, it uses the
/// shape's placement.
/// @throws Error (input) naming the key, such as "ranks[2][7]" for a step.
PipelineOrder parse_order(std::string_view json, const std::string& file, const PipelineShape& shape);

/// A GridPlan is one plan of a grid, from a file or in short form.
struct GridPlan {
  std::string name;
  std::string file;  ///< path of a plan's file, relative to the grid's folder; empty: see `plan`
  /// The plan in short form. It is complete except for the layers of its stages, which are empty because
  /// their number depends on the model. A uniform plan has the same tp, pp and dp in both modules.
  Plan plan;

  bool operator==(const GridPlan&) const = default;
};

/// A PlanGrid lists plans to compare on one device.
struct PlanGrid {
  std::string model;
  std::string cluster;
  int gbs = 0;
  std::vector<GridPlan> plans;  ///< at least one, with distinct names

  bool operator==(const PlanGrid&) const = default;
};

/// Reads a grid (schema "dflop.grid", version 1). A plan in short form has the keys `llm` {tp, pp, dp} and
/// `microbatches`. The key `encoder` gives the encoder its own ranks; without it, one pipeline has both
/// modules. With `encoder_share`, the encoder's ranks share the LLM's GPUs. Optional keys are `schedule`
/// (default 1f1b), `recomputation` (none), `zero1` (true) and `sequence_parallel` (false).
/// @throws Error (input) naming the key, the expected and the found value; also if the gbs leaves
/// microbatches without a sample, or if a name is repeated.
PlanGrid parse_plan_grid(std::string_view json, const std::string& file);

}  // namespace dflop
