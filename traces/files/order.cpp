#include "traces/files/order.hpp"

#include <fmt/format.h>

#include "traces/text/json_writer.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {
namespace {

constexpr std::string_view kOrderSchema = "dflop.order";
constexpr int kOrderVersion = 1;

/// Returns "F, B, I or W with a microbatch from 0 to 7, as F0; on later chunks with .1 to .1".
std::string expected_step(const PipelineShape& shape) {
  std::string text =
      fmt::format("F, B, I or W with a microbatch from 0 to {}, as F0", shape.microbatches - 1);
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
  JsonWriter writer;
  writer.field("schema", kOrderSchema);
  writer.field("version", kOrderVersion);
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
    if (shape.chunks == 1) root.at("placement").refuse("expected no such key where ranks have one chunk");
    order.shape.placement = root.at("placement").choice<Placement>();
  }
  const std::vector<JsonValue> lists = root.at("ranks").elements();
  if (lists.size() != static_cast<std::size_t>(shape.all_ranks())) {
    root.at("ranks").refuse(fmt::format("expected {} lists, one for each pipeline rank, found {}",
                                        shape.all_ranks(), lists.size()));
  }
  for (std::size_t r = 0; r < lists.size(); ++r) {
    order.ranks.push_back(read_steps(lists[r], order.shape, static_cast<int>(r)));
  }
  validate(order, file);
  return order;
}

}  // namespace dflop
