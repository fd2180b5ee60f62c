#include "traces/files/pipeline.hpp"

#include <vector>

#include "traces/text/strict_json.hpp"

namespace dflop {
namespace {

constexpr std::string_view kPipelineSchema = "dflop.pipeline";
constexpr int kPipelineVersion = 1;
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 50;

Seconds read_cell(const JsonValue& json, Seconds) {
  return Seconds(json.non_negative());
}
Bytes read_cell(const JsonValue& json, Bytes) {
  return Bytes{json.integer<std::int64_t>(0, kMaxBytes)};
}

template <typename Value>
std::vector<Value> read_row(const JsonValue& json, int microbatches) {
  if (!json.is_array()) return {read_cell(json, Value{})};
  std::vector<Value> row;
  for (const JsonValue& cell : json.elements()) row.push_back(read_cell(cell, Value{}));
  if (row.size() != static_cast<std::size_t>(microbatches)) {
    json.refuse("expected a number or one for each of {} microbatches, found {}", microbatches, row.size());
  }
  return row;
}

/// Reads a table more strictly than BroadcastTable: an array must have all rows, and a row that is an array
/// must have all microbatches.
template <typename Value>
BroadcastTable<Value> read_table(const JsonValue& json, int rows, std::string_view of, int microbatches) {
  if (!json.is_array()) return {{{read_cell(json, Value{})}}};
  BroadcastTable<Value> table;
  for (const JsonValue& row : json.elements()) table.rows.push_back(read_row<Value>(row, microbatches));
  if (table.rows.size() != static_cast<std::size_t>(rows)) {
    json.refuse("expected a number or one row for each of {} {}, found {}", rows, of, table.rows.size());
  }
  return table;
}

RawLink read_pipeline_link(const JsonValue& json) {
  json.require_keys({"latency_s", "bandwidth_bytes_per_s"});
  RawLink link;
  link.latency = Seconds(json.at("latency_s").non_negative());
  const JsonValue bandwidth = json.at("bandwidth_bytes_per_s");
  link.bytes_per_second = bandwidth.number();
  if (!(link.bytes_per_second > 0)) bandwidth.refuse_type("a number above 0");
  return link;
}

PipelineShape read_shape(const JsonValue& root) {
  PipelineShape shape;
  shape.kind = root.at("schedule").choice(all_order_kinds());
  shape.ranks = root.at("stages").integer(1, kMaxRawStages);
  shape.microbatches = root.at("microbatches").integer(1, kMaxRawCells);
  const OrderTraits& order = traits(shape.kind);
  const bool several_chunks = order.chunks == OrderTraits::kSeveralChunks;
  if (!several_chunks) shape.chunks = order.chunks;
  if (several_chunks || root.has("chunks")) {
    shape.chunks = root.at("chunks").integer(1, kMaxRawStages);
  }
  return shape;
}

RawEncoder read_encoder(const JsonValue& root, int microbatches) {
  RawEncoder encoder;
  encoder.forward = {{read_row<Seconds>(root.at("encoder_forward_s"), microbatches)}};
  encoder.backward = {{read_row<Seconds>(root.at("encoder_backward_s"), microbatches)}};
  if (root.has("encoder_bytes")) {
    encoder.message = {{read_row<Bytes>(root.at("encoder_bytes"), microbatches)}};
  }
  return encoder;
}

/// Reads one limit for all ranks, or one for each.
std::vector<int> read_limits(const JsonValue& json, int ranks) {
  if (!json.is_array()) return {json.integer(1, kMaxRawCells)};
  std::vector<int> limits;
  for (const JsonValue& limit : json.elements()) limits.push_back(limit.integer(1, kMaxRawCells));
  if (limits.size() != static_cast<std::size_t>(ranks)) {
    json.refuse("expected a number or one for each of {} stages, found {}", ranks, limits.size());
  }
  return limits;
}

/// Reads the keys that only some orders have.
void read_schedule_keys(const JsonValue& root, RawPipeline& pipeline) {
  const PipelineShape& shape = pipeline.shape;
  const auto refuse_for_others = [&](std::string_view key, bool known) {
    if (!known && root.has(key)) {
      root.at(key).refuse("{} has no such key", to_string(shape.kind));
    }
  };
  for (const std::string_view key : {"encoder_forward_s", "encoder_backward_s", "encoder_bytes"}) {
    refuse_for_others(key, shape.spreads_encoder());
  }
  refuse_for_others("activation_limit", traits(shape.kind).reads_limits);
  if (shape.spreads_encoder()) pipeline.encoder = read_encoder(root, shape.microbatches);
  if (root.has("activation_limit")) {
    pipeline.activation_limit = read_limits(root.at("activation_limit"), shape.ranks);
  }
}

}  // namespace

RawPipeline parse_pipeline(std::string_view json, const std::string& file) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root(kPipelineSchema, kPipelineVersion);
  root.require_keys({"schema", "version", "schedule", "stages", "microbatches", "forward_s", "backward_s"},
                    {"backward_weight_s", "chunks", "activation_bytes", "p2p_bytes", "link", "shared_link",
                     "activation_limit", "encoder_forward_s", "encoder_backward_s", "encoder_bytes"});
  RawPipeline pipeline;
  pipeline.shape = read_shape(root);
  validate(pipeline.shape, file);
  const int stages = pipeline.shape.ranks * pipeline.shape.chunks;
  const int microbatches = pipeline.shape.microbatches;
  const auto seconds = [&](std::string_view key) {
    return read_table<Seconds>(root.at(key), stages, "stages", microbatches);
  };
  pipeline.forward = seconds("forward_s");
  pipeline.backward = seconds("backward_s");
  if (root.has("backward_weight_s")) pipeline.backward_weight = seconds("backward_weight_s");
  if (root.has("activation_bytes")) {
    pipeline.activation = read_table<Bytes>(root.at("activation_bytes"), stages, "stages", microbatches);
  }
  if (root.has("p2p_bytes")) {
    pipeline.message = read_table<Bytes>(root.at("p2p_bytes"), stages - 1, "boundaries", microbatches);
  }
  read_schedule_keys(root, pipeline);
  if (root.has("link")) pipeline.link = read_pipeline_link(root.at("link"));
  if (root.has("shared_link")) pipeline.shared_link = read_pipeline_link(root.at("shared_link"));
  validate(pipeline, file);
  return pipeline;
}

}  // namespace dflop
