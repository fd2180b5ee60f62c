// Files keep plans, orders of pipeline steps, and grids of plans to be compared.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/order/pipeline_order.hpp"
#include "core/plan.hpp"

namespace dflop {

/// Returns a file of schema "dflop.plan", version 1. Keys that came later (chunks, gradient_bucket_bytes,
/// placement, optimizer_states, reshard, clip_gradients, frozen, lora_rank, respect_memory) are written only
/// where they differ from their defaults, so that older files and programs stay good for all plans that they
/// can express.
std::string to_json(const Plan& plan);

/// Reads a plan; "assumptions", for readers of what 'dflop plan' prints, is passed over. Whether it fits a
/// model and a cluster is for validate() of core/plan.hpp.
/// @throws Error (input) naming the key.
Plan parse_plan(std::string_view json, const std::string& file);

/// Returns {"schema": "dflop.order", "version": 1, "placement": "round-robin" or "v", "ranks": [["F0", "B0"],
/// ...]}: a list of steps for each pipeline rank, named as by step_name(). The placement stands where ranks
/// have several chunks.
std::string to_json(const PipelineOrder& order);

/// Reads an order for a pipeline of this shape, and checks it. Without the key "placement" it is the shape's.
/// @throws Error (input) naming the key, as "ranks[2][7]" for a step.
PipelineOrder parse_order(std::string_view json, const std::string& file, const PipelineShape& shape);

/// A GridPlan is a plan of a grid: a file's, or one in short form.
struct GridPlan {
  std::string name;
  std::string file;  ///< of a plan, as the grid names it: seen from the grid's folder; empty: `plan`
  /// This plan is complete but for the layers of its stages, which are empty: how many there are is the
  /// model's to say. A uniform one has the same tp, pp and dp in both modules.
  Plan plan;

  bool operator==(const GridPlan&) const = default;
};

/// A PlanGrid has plans to be compared on one device.
struct PlanGrid {
  std::string model;
  std::string cluster;
  int gbs = 0;
  std::vector<GridPlan> plans;  ///< at least one, each of another name

  bool operator==(const PlanGrid&) const = default;
};

/// Reads a grid (schema "dflop.grid", version 1). A short form has `llm` {tp, pp, dp} and `microbatches`, and
/// for ranks of the encoder's own `encoder`; without it one pipeline has both. With `encoder_share` these
/// ranks share the LLM's GPUs. Beside them it may have
/// `schedule` (1f1b), `recomputation` (none), `zero1` (true) and `sequence_parallel` (false).
/// @throws Error (input) naming the key, what was expected and found; also for a gbs that leaves microbatches
/// without a sample and for a name that stands twice.
PlanGrid parse_plan_grid(std::string_view json, const std::string& file);

}  // namespace dflop
