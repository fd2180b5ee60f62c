#include "traces/files/plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "traces/text/json_writer.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {
namespace {

constexpr std::string_view kPlanSchema = "dflop.plan";
constexpr int kPlanVersion = 1;
// Products of these in Plan fit in an int.
constexpr int kPlanMostRanks = 1 << 20;
constexpr int kPlanMostMicrobatches = 1 << 20;
constexpr int kPlanMostGbs = 1 << 24;
constexpr int kPlanMostLayers = 10'000;

void write_module(JsonWriter& writer, std::string_view key, const ModulePlan& module) {
  writer.begin_object(key);
  writer.field("tp", module.tp);
  writer.field("pp", module.pp);
  writer.field("dp", module.dp);
  writer.row("layers", module.layers);
  writer.end_object();
}

ModulePlan read_parallelism(const JsonValue& json, int most) {
  ModulePlan module;
  module.tp = json.at("tp").integer(1, most);
  module.pp = json.at("pp").integer(1, most);
  module.dp = json.at("dp").integer(1, most);
  return module;
}

/// Reads a module; `chunks` is the number of stages on each pipeline rank.
ModulePlan read_module(const JsonValue& json, int chunks) {
  json.require_keys({"tp", "pp", "dp", "layers"});
  ModulePlan module = read_parallelism(json, kPlanMostRanks);
  const std::int64_t ranks = std::int64_t{module.tp} * module.pp * module.dp;
  if (ranks > kPlanMostRanks) {
    json.refuse("expected tp x pp x dp of at most {}, found {}", kPlanMostRanks, ranks);
  }
  for (const std::int64_t layers : json.at("layers").integers(0, kPlanMostLayers)) {
    module.layers.push_back(static_cast<int>(layers));
  }
  const std::int64_t stages = std::int64_t{module.pp} * chunks;
  if (static_cast<std::int64_t>(module.layers.size()) != stages) {
    json.at("layers").refuse_type("one number for each of {} stages", stages);
  }
  return module;
}

}  // namespace

std::string to_json(const Plan& plan) {
  JsonWriter writer(kPlanSchema, kPlanVersion);
  writer.field("planner", plan.planner);
  writer.field("model", plan.model);
  writer.field("cluster", plan.cluster);
  writer.field("gbs", plan.gbs);
  writer.field("layout", to_string(plan.layout));
  if (plan.layout == Layout::shared) writer.field("encoder_share", plan.encoder_share);
  write_module(writer, "encoder", plan.encoder);
  write_module(writer, "llm", plan.llm);
  writer.field("microbatches", plan.microbatches);
  writer.field("schedule", to_string(plan.order));
  if (plan.chunks != 1) writer.field("chunks", plan.chunks);
  writer.field("recomputation", to_string(plan.recomputation));
  if (plan.encoder_recomputation)
    writer.field("encoder_recomputation", to_string(*plan.encoder_recomputation));
  if (plan.gradient_bucket.count > 0) writer.field("gradient_bucket_bytes", plan.gradient_bucket.count);
  if (plan.placement != RankOrder::stage_major) writer.field("placement", to_string(plan.placement));
  if (plan.optimizer_states != OptimizerStates::fp32)
    writer.field("optimizer_states", to_string(plan.optimizer_states));
  if (plan.reshard != Reshard::direct) writer.field("reshard", to_string(plan.reshard));
  if (plan.share_rule != ShareRule::cost) writer.field("share_rule", to_string(plan.share_rule));
  writer.field("zero1", plan.zero1);
  writer.field("sequence_parallel", plan.sequence_parallel);
  if (plan.clip_gradients) writer.field("clip_gradients", true);
  if (!plan.trained.all()) writer.row("frozen", frozen_parts(plan.trained));
  if (plan.trained.lora_rank > 0) writer.field("lora_rank", plan.trained.lora_rank);
  if (plan.objective) writer.field("objective", to_string(*plan.objective));
  if (plan.respect_memory) writer.field("respect_memory", true);
  return writer.finish();
}

Plan parse_plan(std::string_view json, const std::string& file) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root(kPlanSchema, kPlanVersion);
  root.require_keys({"schema", "version", "planner", "model", "cluster", "gbs", "layout", "encoder", "llm",
                     "microbatches", "schedule", "recomputation", "zero1", "sequence_parallel"},
                    {"encoder_share", "chunks", "encoder_recomputation", "gradient_bucket_bytes", "placement",
                     "optimizer_states", "reshard", "share_rule", "clip_gradients", "frozen", "lora_rank",
                     "objective", "respect_memory", "assumptions"});
  Plan plan;
  plan.planner = root.at("planner").string();
  plan.model = root.at("model").string();
  plan.cluster = root.at("cluster").string();
  plan.gbs = root.at("gbs").integer(1, kPlanMostGbs);
  plan.layout = root.at("layout").choice<Layout>();
  if (plan.layout == Layout::shared) {
    plan.encoder_share = root.at("encoder_share").number_in(0, 1);
  } else if (root.has("encoder_share")) {
    root.at("encoder_share")
        .refuse("expected a share only in shared plans, found one in a {} plan", to_string(plan.layout));
  }
  if (root.has("chunks")) plan.chunks = root.at("chunks").integer(1, kPlanMostLayers);
  plan.encoder = read_module(root.at("encoder"), plan.layout == Layout::uniform ? plan.chunks : 1);
  plan.llm = read_module(root.at("llm"), plan.chunks);
  plan.microbatches = root.at("microbatches").integer(1, kPlanMostMicrobatches);
  const std::int64_t bins = std::int64_t{plan.microbatches} * plan.llm.dp;
  if (plan.gbs < bins) {
    root.at("gbs").refuse_type("at least {} samples, one for each of {} microbatches x dp {}", bins,
                               plan.microbatches, plan.llm.dp);
  }
  plan.order = root.at("schedule").choice(all_order_kinds());
  plan.recomputation = root.at("recomputation").choice<Recomputation>();
  if (root.has("encoder_recomputation"))
    plan.encoder_recomputation = root.at("encoder_recomputation").choice<Recomputation>();
  if (root.has("share_rule")) plan.share_rule = root.at("share_rule").choice<ShareRule>();
  if (root.has("gradient_bucket_bytes")) {
    plan.gradient_bucket = {root.at("gradient_bucket_bytes").integer<std::int64_t>(0, kMaxGradientBucket)};
  }
  if (root.has("placement")) {
    plan.placement = root.at("placement").choice<RankOrder>();
  }
  if (root.has("optimizer_states")) {
    plan.optimizer_states = root.at("optimizer_states").choice<OptimizerStates>();
  }
  if (root.has("reshard")) plan.reshard = root.at("reshard").choice<Reshard>();
  plan.zero1 = root.at("zero1").boolean();
  plan.sequence_parallel = root.at("sequence_parallel").boolean();
  if (root.has("clip_gradients")) plan.clip_gradients = root.at("clip_gradients").boolean();
  if (root.has("frozen")) {
    for (const JsonValue& part : root.at("frozen").elements()) {
      bool TrainedParts::*const flag = trained_flag(part.string());
      if (flag == nullptr) part.refuse_type("one of encoder, connector, llm");
      plan.trained.*flag = false;
    }
  }
  if (root.has("lora_rank")) plan.trained.lora_rank = root.at("lora_rank").integer(1, kMaxLoraRank);
  if (root.has("objective")) plan.objective = root.at("objective").choice<Objective>();
  if (root.has("respect_memory")) plan.respect_memory = root.at("respect_memory").boolean();
  return plan;
}

namespace {

constexpr std::string_view kOrderSchema = "dflop.order";
constexpr int kOrderVersion = 1;

/// Returns "F, B, I or W with a microbatch from 0 to 7, as F0; on later chunks with .1 to .1".
std::string expected_step(const PipelineShape& shape) {
  std::string text =
      fmt::format("F, B, I or W with a microbatch from 0 to {}, such as F0", shape.microbatches - 1);
  if (shape.chunks > 1) text += fmt::format("; on later chunks with .1 to .{}", shape.chunks - 1);
  if (shape.spreads_encoder()) text += "; on the encoder with .e";
  return text;
}

std::vector<OrderStep> read_steps(const JsonValue& json, const PipelineShape& shape, int rank) {
  std::vector<OrderStep> steps;
  for (const JsonValue& item : json.elements()) {
    const std::optional<OrderStep> step = step_from_name(shape, rank, item.string());
    if (!step) item.refuse_type(expected_step(shape));
    steps.push_back(*step);
  }
  return steps;
}

}  // namespace

std::string to_json(const PipelineOrder& order) {
  JsonWriter writer(kOrderSchema, kOrderVersion);
  if (order.shape.chunks > 1) writer.field("placement", to_string(order.shape.chunk_placement()));
  writer.begin_array("ranks");
  for (const std::vector<OrderStep>& steps : order.ranks) {
    writer.row({}, steps, [&](const OrderStep& step) { return step_name(order.shape, step); });
  }
  writer.end_array();
  return writer.finish();
}

PipelineOrder parse_order(std::string_view json, const std::string& file, const PipelineShape& shape) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root(kOrderSchema, kOrderVersion);
  root.require_keys({"schema", "version", "ranks"}, {"placement"});
  PipelineOrder order{shape, {}};
  if (root.has("placement")) {
    if (shape.chunks == 1) root.at("placement").refuse("expected no such key if ranks have one chunk");
    order.shape.placement = root.at("placement").choice<Placement>();
  }
  const std::vector<JsonValue> lists = root.at("ranks").elements();
  if (lists.size() != static_cast<std::size_t>(shape.all_ranks())) {
    root.at("ranks").refuse("expected {} lists, one for each pipeline rank, found {}", shape.all_ranks(),
                            lists.size());
  }
  for (std::size_t r = 0; r < lists.size(); ++r) {
    order.ranks.push_back(read_steps(lists[r], order.shape, static_cast<int>(r)));
  }
  validate(order, file);
  return order;
}

namespace {

constexpr std::string_view kGridSchema = "dflop.grid";
constexpr int kGridVersion = 1;
// Products of these fit in an int.
constexpr int kGridMostRanks = 1 << 10;
constexpr int kGridMostMicrobatches = 1 << 16;
constexpr int kGridMostGbs = 1 << 24;

ModulePlan read_short_module(const JsonValue& json) {
  json.require_keys({"tp", "pp", "dp"});
  return read_parallelism(json, kGridMostRanks);
}

/// Reads a plan in short form; `grid` has the values that all plans share.
Plan read_short_plan(const JsonValue& json, const PlanGrid& grid) {
  json.require_keys({"name", "llm", "microbatches"},
                    {"encoder", "encoder_share", "schedule", "recomputation", "zero1", "sequence_parallel"});
  Plan plan;
  plan.planner = "grid";
  plan.model = grid.model;
  plan.cluster = grid.cluster;
  plan.gbs = grid.gbs;
  plan.layout = json.has("encoder") ? Layout::disaggregated : Layout::uniform;
  plan.llm = read_short_module(json.at("llm"));
  plan.encoder = json.has("encoder") ? read_short_module(json.at("encoder")) : plan.llm;
  if (json.has("encoder_share")) {
    if (!json.has("encoder")) json.at("encoder_share").refuse("expected 'encoder' as well, found none");
    plan.layout = Layout::shared;
    plan.encoder_share = json.at("encoder_share").number_in(0, 1);
  }
  plan.microbatches = json.at("microbatches").integer(1, kGridMostMicrobatches);
  if (plan.bins() > grid.gbs) {
    json.at("microbatches")
        .refuse("expected a sample for each of {} microbatches x dp {}, found a gbs of {}", plan.microbatches,
                plan.llm.dp, grid.gbs);
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
  if (twice) name.refuse_type("a name that no earlier plan has");
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
