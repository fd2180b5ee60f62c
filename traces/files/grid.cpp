#include "traces/files/grid.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "traces/text/strict_json.hpp"

namespace dflop {
namespace {

constexpr std::string_view kGridSchema = "dflop.grid";
constexpr int kGridVersion = 1;
// Products of these stay inside an int.
constexpr int kGridMostRanks = 1 << 10;
constexpr int kGridMostMicrobatches = 1 << 16;
constexpr int kGridMostGbs = 1 << 24;

ModulePlan read_module(const JsonValue& json) {
  json.require_keys({"tp", "pp", "dp"});
  ModulePlan module;
  module.tp = json.at("tp").integer(1, kGridMostRanks);
  module.pp = json.at("pp").integer(1, kGridMostRanks);
  module.dp = json.at("dp").integer(1, kGridMostRanks);
  return module;
}

/// Reads a plan in short form; `grid` says what all plans have in common.
Plan read_short_plan(const JsonValue& json, const PlanGrid& grid) {
  json.require_keys({"name", "llm", "microbatches"},
                    {"encoder", "schedule", "recomputation", "zero1", "sequence_parallel"});
  Plan plan;
  plan.planner = "grid";
  plan.model = grid.model;
  plan.cluster = grid.cluster;
  plan.gbs = grid.gbs;
  plan.layout = json.has("encoder") ? Layout::disaggregated : Layout::uniform;
  plan.llm = read_module(json.at("llm"));
  plan.encoder = json.has("encoder") ? read_module(json.at("encoder")) : plan.llm;
  plan.microbatches = json.at("microbatches").integer(1, kGridMostMicrobatches);
  if (plan.bins() > grid.gbs) {
    json.at("microbatches")
        .refuse(fmt::format("expected a sample for each of {} microbatches x dp {}, found a gbs of {}",
                            plan.microbatches, plan.llm.dp, grid.gbs));
  }
  if (json.has("schedule")) {
    const auto fits_here = [](const OrderTraits& order) {  // a short form has no chunks
      return !order.has_chunks() && (fits(order, Layout::disaggregated) || fits(order, Layout::uniform));
    };
    plan.order = json.at("schedule").choice(orders_where(fits_here));
  }
  plan.recomputation = Recomputation::none;
  if (json.has("recomputation")) {
    plan.recomputation = json.at("recomputation").choice<Recomputation>();
  }
  if (json.has("zero1")) plan.zero1 = json.at("zero1").boolean();
  plan.sequence_parallel = json.has("sequence_parallel") && json.at("sequence_parallel").boolean();
  return plan;
}

GridPlan read_plan(const JsonValue& json, const PlanGrid& grid) {
  GridPlan plan;
  if (json.has("file")) {
    json.require_keys({"name", "file"});
    plan.file = json.at("file").string();
    if (plan.file.empty()) json.at("file").refuse("expected the path of a plan, found an empty text");
  } else {
    plan.plan = read_short_plan(json, grid);
  }
  const JsonValue name = json.at("name");
  plan.name = name.string();
  if (plan.name.empty()) name.refuse("expected a name, found an empty text");
  const bool twice = std::any_of(grid.plans.begin(), grid.plans.end(),
                                 [&](const GridPlan& other) { return other.name == plan.name; });
  if (twice) name.refuse_type("a name that no plan before it has");
  return plan;
}

}  // namespace

PlanGrid parse_plan_grid(std::string_view json, const std::string& file) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root(kGridSchema, kGridVersion);
  root.require_keys({"schema", "version", "model", "cluster", "gbs", "plans"});
  PlanGrid grid;
  grid.model = root.at("model").string();
  grid.cluster = root.at("cluster").string();
  grid.gbs = root.at("gbs").integer(1, kGridMostGbs);
  for (const JsonValue& element : root.at("plans").elements()) {
    element.require_object();
    grid.plans.push_back(read_plan(element, grid));
  }
  if (grid.plans.empty()) root.at("plans").refuse("expected at least one plan, found none");
  return grid;
}

}  // namespace dflop
