#include "traces/files/specs.hpp"

#include <fmt/format.h>

#include "traces/text/json_writer.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {
namespace {

constexpr int kSpecsVersion = 1;

// These limits are far above real models and GPUs, and so low that products of a few of them stay inside 64
// bits.
constexpr int kSpecsMostLayers = 10'000;
constexpr int kMostWidth = 1 << 20;
constexpr int kMostHeads = 1 << 14;
constexpr int kMostVocabulary = 1 << 26;
constexpr std::int64_t kSpecsMostTokens = std::int64_t{1} << 22;
constexpr std::int64_t kMostMemory = 1'000'000'000'000'000;
constexpr int kMostGpusPerNode = 1024;

// These limits are six orders of magnitude around real GPUs: quotients of the largest work and the smallest
// rates are years, neither infinite nor NaN.
constexpr double kLeastFlopPerS = 1e9;
constexpr double kMostFlopPerS = 1e18;
constexpr double kLeastBytesPerS = 1e6;
constexpr double kMostBytesPerS = 1e15;
constexpr double kLeastEfficiency = 0.001;
constexpr int kMostLeafNodes = 4096;
constexpr double kMostOversubscription = 1000;
constexpr double kMostHalf = 1e6;
constexpr double kMostLatencyS = 1;

/// Reads a module; `least_vocabulary` is 0 for an encoder, which has neither embedding nor vocabulary head.
TransformerSpec read_transformer(const JsonValue& json, int least_vocabulary) {
  json.require_keys({"name", "layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "gated_mlp",
                     "causal", "vocabulary"});
  TransformerSpec spec;
  spec.name = json.at("name").string();
  spec.layers = json.at("layers").integer(1, kSpecsMostLayers);
  spec.hidden = json.at("hidden").integer(1, kMostWidth);
  spec.ffn = json.at("ffn").integer(1, kMostWidth);
  spec.heads = json.at("heads").integer(1, kMostHeads);
  spec.kv_heads = json.at("kv_heads").integer(1, kMostHeads);
  spec.head_dim = json.at("head_dim").integer(1, kMostHeads);
  spec.gated_mlp = json.at("gated_mlp").boolean();
  spec.causal = json.at("causal").boolean();
  spec.vocabulary = json.at("vocabulary").integer(least_vocabulary, kMostVocabulary);
  if (spec.heads % spec.kv_heads != 0) {
    json.at("kv_heads").refuse_type(fmt::format("a divisor of the {} heads", spec.heads));
  }
  return spec;
}

ConnectorSpec read_connector(const JsonValue& json, const TransformerSpec& encoder,
                             const TransformerSpec& llm) {
  json.require_keys({"widths", "merge"});
  ConnectorSpec spec;
  const JsonValue widths = json.at("widths");
  for (const std::int64_t width : widths.integers(1, kMostWidth))
    spec.widths.push_back(static_cast<int>(width));
  spec.merge = json.at("merge").integer(1, 1024);
  if (spec.widths.size() < 2) widths.refuse_type("an array of at least 2 widths");
  const std::int64_t joined = std::int64_t{encoder.hidden} * spec.merge;
  if (spec.widths.front() != encoder.hidden && spec.widths.front() != joined) {
    widths.elements().front().refuse_type(
        fmt::format("the encoder's hidden width {} (tokens averaged) or {} times it (tokens joined)",
                    encoder.hidden, spec.merge));
  }
  if (spec.widths.back() != llm.hidden) {
    widths.elements().back().refuse_type(fmt::format("the LLM's hidden width {}", llm.hidden));
  }
  return spec;
}

double read_bandwidth(const JsonValue& json) {
  return json.number_in(kLeastBytesPerS, kMostBytesPerS);
}
double read_efficiency(const JsonValue& json) {
  return json.number_in(kLeastEfficiency, 1);
}
double read_half(const JsonValue& json) {
  return json.number_in(0, kMostHalf);
}
Seconds read_latency(const JsonValue& json) {
  return Seconds(json.number_in(0, kMostLatencyS));
}

GpuSpec read_gpu(const JsonValue& json) {
  json.require_keys(
      {"name", "peak_flop_per_s", "memory_bandwidth_bytes_per_s", "memory_bytes", "reserved_memory_bytes",
       "gemm_efficiency", "gemm_half_tokens", "gemm_half_width", "attention_forward_efficiency",
       "attention_backward_efficiency", "attention_half_tokens", "memory_efficiency", "kernel_overhead_s"},
      {"layer_launch_s"});
  GpuSpec gpu;
  gpu.name = json.at("name").string();
  gpu.peak_flop_per_s = json.at("peak_flop_per_s").number_in(kLeastFlopPerS, kMostFlopPerS);
  gpu.memory_bandwidth_bytes_per_s = read_bandwidth(json.at("memory_bandwidth_bytes_per_s"));
  gpu.memory = {json.at("memory_bytes").integer<std::int64_t>(1, kMostMemory)};
  gpu.reserved_memory = {json.at("reserved_memory_bytes").integer<std::int64_t>(0, gpu.memory.count)};
  gpu.gemm_efficiency = read_efficiency(json.at("gemm_efficiency"));
  gpu.gemm_half_tokens = read_half(json.at("gemm_half_tokens"));
  gpu.gemm_half_width = read_half(json.at("gemm_half_width"));
  gpu.attention_forward_efficiency = read_efficiency(json.at("attention_forward_efficiency"));
  gpu.attention_backward_efficiency = read_efficiency(json.at("attention_backward_efficiency"));
  gpu.attention_half_tokens = read_half(json.at("attention_half_tokens"));
  gpu.memory_efficiency = read_efficiency(json.at("memory_efficiency"));
  gpu.kernel_overhead = read_latency(json.at("kernel_overhead_s"));
  if (json.has("layer_launch_s")) gpu.layer_launch = read_latency(json.at("layer_launch_s"));
  return gpu;
}

Link read_cluster_link(const JsonValue& json) {
  json.require_keys({"latency_s", "bandwidth_bytes_per_s"});
  return {read_latency(json.at("latency_s")), read_bandwidth(json.at("bandwidth_bytes_per_s"))};
}

LeafSwitches read_leaf(const JsonValue& json) {
  json.require_keys({"nodes", "oversubscription"});
  return {json.at("nodes").integer(1, kMostLeafNodes),
          json.at("oversubscription").number_in(1, kMostOversubscription)};
}

/// "source" says where the figures come from; it is for readers of the file.
void check_source(const JsonValue& root) {
  if (root.has("source")) root.at("source").string();
}

}  // namespace

ModelSpec parse_model(std::string_view json, const std::string& file) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root("dflop.model", kSpecsVersion);
  root.require_keys({"schema", "version", "name", "preprocess", "max_tokens", "encoder", "connector", "llm"},
                    {"source"});
  check_source(root);
  ModelSpec model;
  model.name = root.at("name").string();
  model.preprocess = root.at("preprocess").string();
  model.max_tokens = root.at("max_tokens").integer<std::int64_t>(1, kSpecsMostTokens);
  model.encoder = read_transformer(root.at("encoder"), 0);
  model.llm = read_transformer(root.at("llm"), 1);
  model.connector = read_connector(root.at("connector"), model.encoder, model.llm);
  return model;
}

ClusterSpec parse_cluster(std::string_view json, const std::string& file) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root("dflop.cluster", kSpecsVersion);
  root.require_keys(
      {"schema", "version", "name", "gpus_per_node", "gpu", "intra_node", "inter_node"},
      {"source", "leaf", "collectives", "message_overhead_s", "node_ring_bandwidth_bytes_per_s", "fit"});
  check_source(root);
  ClusterSpec cluster;
  cluster.name = root.at("name").string();
  cluster.gpus_per_node = root.at("gpus_per_node").integer(1, kMostGpusPerNode);
  cluster.gpu = read_gpu(root.at("gpu"));
  cluster.intra_node = read_cluster_link(root.at("intra_node"));
  cluster.inter_node = read_cluster_link(root.at("inter_node"));
  if (root.has("leaf")) cluster.leaf = read_leaf(root.at("leaf"));
  if (root.has("collectives")) {
    cluster.collectives = root.at("collectives")
                              .choice({CollectiveAlgorithm::hierarchical, CollectiveAlgorithm::ring,
                                       CollectiveAlgorithm::tree, CollectiveAlgorithm::fastest});
  }
  if (root.has("message_overhead_s")) cluster.message_overhead = read_latency(root.at("message_overhead_s"));
  if (root.has("node_ring_bandwidth_bytes_per_s")) {
    cluster.node_ring_bandwidth_bytes_per_s = read_bandwidth(root.at("node_ring_bandwidth_bytes_per_s"));
  }
  if (root.has("fit")) root.at("fit").require_object();
  return cluster;
}

std::string to_json(const ClusterSpec& cluster, std::string_view source, std::string_view fit) {
  JsonWriter writer;
  writer.field("schema", std::string_view("dflop.cluster"));
  writer.field("version", kSpecsVersion);
  writer.field("name", cluster.name);
  writer.field("source", source);
  writer.field("gpus_per_node", cluster.gpus_per_node);
  const GpuSpec& gpu = cluster.gpu;
  writer.begin_object("gpu");
  writer.field("name", gpu.name);
  writer.field("peak_flop_per_s", gpu.peak_flop_per_s);
  writer.field("memory_bandwidth_bytes_per_s", gpu.memory_bandwidth_bytes_per_s);
  writer.field("memory_bytes", gpu.memory.count);
  writer.field("reserved_memory_bytes", gpu.reserved_memory.count);
  writer.field("gemm_efficiency", gpu.gemm_efficiency);
  writer.field("gemm_half_tokens", gpu.gemm_half_tokens);
  writer.field("gemm_half_width", gpu.gemm_half_width);
  writer.field("attention_forward_efficiency", gpu.attention_forward_efficiency);
  writer.field("attention_backward_efficiency", gpu.attention_backward_efficiency);
  writer.field("attention_half_tokens", gpu.attention_half_tokens);
  writer.field("memory_efficiency", gpu.memory_efficiency);
  writer.field("kernel_overhead_s", gpu.kernel_overhead.count());
  writer.field("layer_launch_s", gpu.layer_launch.count());
  writer.end_object();
  const auto write_link = [&](std::string_view key, const Link& link) {
    writer.begin_object(key);
    writer.field("latency_s", link.latency.count());
    writer.field("bandwidth_bytes_per_s", link.bandwidth_bytes_per_s);
    writer.end_object();
  };
  write_link("intra_node", cluster.intra_node);
  write_link("inter_node", cluster.inter_node);
  writer.field("message_overhead_s", cluster.message_overhead.count());
  if (cluster.node_ring_bandwidth_bytes_per_s > 0) {
    writer.field("node_ring_bandwidth_bytes_per_s", cluster.node_ring_bandwidth_bytes_per_s);
  }
  writer.raw("fit", fit);
  return writer.finish();
}

}  // namespace dflop
