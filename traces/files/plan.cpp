#include "traces/files/plan.hpp"

#include <fmt/format.h>

#include "traces/text/json_writer.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {
namespace {

constexpr std::string_view kPlanSchema = "dflop.plan";
constexpr int kPlanVersion = 1;
// The products that Plan makes of these stay inside an int.
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

/// Reads a module; `chunks` is the stages of each pipeline rank.
ModulePlan read_module(const JsonValue& json, int chunks) {
  json.require_keys({"tp", "pp", "dp", "layers"});
  ModulePlan module;
  module.tp = json.at("tp").integer(1, kPlanMostRanks);
  module.pp = json.at("pp").integer(1, kPlanMostRanks);
  module.dp = json.at("dp").integer(1, kPlanMostRanks);
  const std::int64_t ranks = std::int64_t{module.tp} * module.pp * module.dp;
  if (ranks > kPlanMostRanks) {
    json.refuse(fmt::format("expected tp x pp x dp of at most {}, found {}", kPlanMostRanks, ranks));
  }
  for (const std::int64_t layers : json.at("layers").integers(0, kPlanMostLayers)) {
    module.layers.push_back(static_cast<int>(layers));
  }
  const std::int64_t stages = std::int64_t{module.pp} * chunks;
  if (static_cast<std::int64_t>(module.layers.size()) != stages) {
    json.at("layers").refuse_type(fmt::format("one number for each of {} stages", stages));
  }
  return module;
}

}  // namespace

std::string to_json(const Plan& plan) {
  JsonWriter writer;
  writer.field("schema", kPlanSchema);
  writer.field("version", kPlanVersion);
  writer.field("planner", plan.planner);
  writer.field("model", plan.model);
  writer.field("cluster", plan.cluster);
  writer.field("gbs", plan.gbs);
  writer.field("layout", to_string(plan.layout));
  write_module(writer, "encoder", plan.encoder);
  write_module(writer, "llm", plan.llm);
  writer.field("microbatches", plan.microbatches);
  writer.field("schedule", to_string(plan.order));
  if (plan.chunks != 1) writer.field("chunks", plan.chunks);
  writer.field("recomputation", to_string(plan.recomputation));
  if (plan.gradient_bucket.count > 0) writer.field("gradient_bucket_bytes", plan.gradient_bucket.count);
  if (plan.placement != RankOrder::stage_major) writer.field("placement", to_string(plan.placement));
  writer.field("zero1", plan.zero1);
  writer.field("sequence_parallel", plan.sequence_parallel);
  return writer.finish();
}

Plan parse_plan(std::string_view json, const std::string& file) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root(kPlanSchema, kPlanVersion);
  root.require_keys({"schema", "version", "planner", "model", "cluster", "gbs", "layout", "encoder", "llm",
                     "microbatches", "schedule", "recomputation", "zero1", "sequence_parallel"},
                    {"chunks", "gradient_bucket_bytes", "placement"});
  Plan plan;
  plan.planner = root.at("planner").string();
  plan.model = root.at("model").string();
  plan.cluster = root.at("cluster").string();
  plan.gbs = root.at("gbs").integer(1, kPlanMostGbs);
  plan.layout = root.at("layout").choice<Layout>();
  if (root.has("chunks")) plan.chunks = root.at("chunks").integer(1, kPlanMostLayers);
  plan.encoder = read_module(root.at("encoder"), plan.layout == Layout::uniform ? plan.chunks : 1);
  plan.llm = read_module(root.at("llm"), plan.chunks);
  plan.microbatches = root.at("microbatches").integer(1, kPlanMostMicrobatches);
  const std::int64_t bins = std::int64_t{plan.microbatches} * plan.llm.dp;
  if (plan.gbs < bins) {
    root.at("gbs").refuse_type(fmt::format("at least {} samples, one for each of {} microbatches x dp {}",
                                           bins, plan.microbatches, plan.llm.dp));
  }
  plan.order = root.at("schedule").choice(all_order_kinds());
  plan.recomputation = root.at("recomputation").choice<Recomputation>();
  if (root.has("gradient_bucket_bytes")) {
    plan.gradient_bucket = {root.at("gradient_bucket_bytes").integer<std::int64_t>(0, kMostGradientBucket)};
  }
  if (root.has("placement")) {
    plan.placement = root.at("placement").choice<RankOrder>();
  }
  plan.zero1 = root.at("zero1").boolean();
  plan.sequence_parallel = root.at("sequence_parallel").boolean();
  return plan;
}

}  // namespace dflop
