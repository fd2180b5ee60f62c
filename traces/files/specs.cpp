#include "traces/files/specs.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.hpp"
#include "traces/files/cluster_notes.hpp"
#include "traces/files/specs_parts.hpp"
#include "traces/preprocess/preprocess.hpp"
#include "traces/text/json_writer.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {

TransformerSpec read_transformer(const JsonValue& json, const TransformerLimits& limits,
                                 const std::vector<std::string_view>& optional) {
  json.require_keys({"name", "layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "gated_mlp",
                     "causal", "vocabulary"},
                    optional);
  TransformerSpec spec;
  spec.name = json.at("name").string();
  spec.layers = json.at("layers").integer(1, limits.layers);
  spec.hidden = json.at("hidden").integer(1, limits.width);
  spec.ffn = json.at("ffn").integer(1, limits.width);
  spec.heads = json.at("heads").integer(1, limits.heads);
  spec.kv_heads = json.at("kv_heads").integer(1, limits.heads);
  spec.head_dim = json.at("head_dim").integer(1, limits.heads);
  spec.gated_mlp = json.at("gated_mlp").boolean();
  spec.causal = json.at("causal").boolean();
  spec.vocabulary = json.at("vocabulary").integer(limits.least_vocabulary, limits.vocabulary);
  if (json.has("logits_at_once")) spec.logits_at_once = json.at("logits_at_once").integer<std::int64_t>(1);
  return spec;
}

ConnectorSpec read_connector(const JsonValue& json, int most_width, int most_merge) {
  json.require_keys({"widths", "merge"});
  const std::vector<std::int64_t> widths = json.at("widths").integers(1, most_width);
  return {{widths.begin(), widths.end()}, json.at("merge").integer(1, most_merge)};
}

namespace {

constexpr int kSpecsVersion = 1;

// These limits are far above real models and GPUs, and low enough that products of a few of them fit in 64
// bits.
constexpr int kSpecsMostLayers = 10'000;
constexpr int kMaxWidth = 1 << 20;
constexpr int kMaxHeads = 1 << 14;
constexpr int kMaxVocabulary = 1 << 26;
constexpr std::int64_t kSpecsMostTokens = std::int64_t{1} << 22;
constexpr std::int64_t kMaxMemory = 1'000'000'000'000'000;
constexpr int kMaxGpusPerNode = 1024;

// These limits are six orders of magnitude around real GPUs: even the quotient of the largest work and the
// smallest rate is in years, not infinite or NaN.
constexpr double kMinFlopPerS = 1e9;
constexpr double kMaxFlopPerS = 1e18;
constexpr double kMinBytesPerS = 1e6;
constexpr double kMaxBytesPerS = 1e15;
constexpr double kMinEfficiency = 0.001;
constexpr int kMaxNodes = 4096;
constexpr double kMaxOversubscription = 1000;
constexpr double kMaxHalf = 1e6;
constexpr double kMaxLatencyS = 1;
constexpr int kMaxMultiprocessors = 1 << 16;
constexpr double kMaxCacheFactor = 100;

/// Reads a module of a model that is to be run.
TransformerSpec read_module_spec(const JsonValue& json, int least_vocabulary) {
  std::vector<std::string_view> optional;
  if (least_vocabulary > 0) optional = {"logits_at_once"};
  TransformerSpec spec = read_transformer(
      json, {kSpecsMostLayers, kMaxWidth, kMaxHeads, least_vocabulary, kMaxVocabulary}, optional);
  if (spec.heads % spec.kv_heads != 0) {
    json.at("kv_heads").refuse_type("a divisor of the {} heads", spec.heads);
  }
  return spec;
}

/// Reads the connector of a model that is to be run.
ConnectorSpec read_fitting_connector(const JsonValue& json, const TransformerSpec& encoder,
                                     const TransformerSpec& llm) {
  ConnectorSpec spec = read_connector(json, kMaxWidth, 1024);
  const JsonValue widths = json.at("widths");
  if (spec.widths.size() < 2) widths.refuse_type("an array of at least 2 widths");
  const std::int64_t joined = std::int64_t{encoder.hidden} * spec.merge;
  if (spec.widths.front() != encoder.hidden && spec.widths.front() != joined) {
    widths.elements().front().refuse_type(
        "the encoder's hidden width {} (tokens averaged) or {} times it (tokens joined)", encoder.hidden,
        spec.merge);
  }
  if (spec.widths.back() != llm.hidden) {
    widths.elements().back().refuse_type("the LLM's hidden width {}", llm.hidden);
  }
  return spec;
}

/// BandwidthKeys are the names of one bandwidth in bytes, in 1e9 bits and in 1e9 bytes a second; a file uses
/// one of them.
using BandwidthKeys = std::array<std::string_view, 3>;
constexpr BandwidthKeys kLinkBandwidth = {"bandwidth_bytes_per_s", "bandwidth_gbit_per_s",
                                          "bandwidth_gbyte_per_s"};
constexpr BandwidthKeys kMemoryBandwidth = {"memory_bandwidth_bytes_per_s", "memory_bandwidth_gbit_per_s",
                                            "memory_bandwidth_gbyte_per_s"};
constexpr BandwidthKeys kRingBandwidth = {"node_ring_bandwidth_bytes_per_s", "node_ring_bandwidth_gbit_per_s",
                                          "node_ring_bandwidth_gbyte_per_s"};
constexpr std::array<double, 3> kBytesOfUnits = {1, 1e9 / 8, 1e9};

/// Returns the keys together with a bandwidth's keys in all units.
std::vector<std::string_view> with_units(std::vector<std::string_view> keys, const BandwidthKeys& bandwidth) {
  keys.insert(keys.end(), bandwidth.begin(), bandwidth.end());
  return keys;
}

/// Returns the index of the key that an object uses for a bandwidth; nothing if it has none.
std::optional<std::size_t> unit_of_bandwidth(const JsonValue& json, const BandwidthKeys& keys) {
  std::optional<std::size_t> found;
  for (std::size_t unit = 0; unit < keys.size(); ++unit) {
    if (!json.has(keys[unit])) continue;
    if (found) {
      json.at(keys[unit])
          .refuse("expected a bandwidth in one unit, found '{}' and '{}'", keys[*found], keys[unit]);
    }
    found = unit;
  }
  return found;
}

/// Reads a bandwidth in any unit, and returns bytes a second.
double read_bandwidth(const JsonValue& json, const BandwidthKeys& keys) {
  const std::optional<std::size_t> unit = unit_of_bandwidth(json, keys);
  if (!unit) json.refuse("expected '{}', '{}' or '{}', found none of them", keys[0], keys[1], keys[2]);
  const double bytes = kBytesOfUnits[*unit];
  return bytes * json.at(keys[*unit]).number_in(kMinBytesPerS / bytes, kMaxBytesPerS / bytes);
}
double read_efficiency(const JsonValue& json) {
  return json.number_in(kMinEfficiency, 1);
}
double read_half(const JsonValue& json) {
  return json.number_in(0, kMaxHalf);
}
Seconds read_latency(const JsonValue& json) {
  return Seconds(json.number_in(0, kMaxLatencyS));
}

/// Checks "source", which says where the figures come from, for people who read the file.
void check_source(const JsonValue& root) {
  if (root.has("source")) root.at("source").string();
}

/// In older files these keys of a cluster's software were under "gpu", and the others at the top level.
constexpr std::string_view kOfGpuBefore[] = {"gemm_efficiency",
                                             "gemm_half_tokens",
                                             "gemm_half_width",
                                             "attention_forward_efficiency",
                                             "attention_backward_efficiency",
                                             "attention_half_tokens",
                                             "memory_efficiency",
                                             "kernel_overhead_s",
                                             "layer_launch_s"};
constexpr std::string_view kOfClusterBefore[] = {"message_overhead_s"};

GpuSpec read_gpu(const JsonValue& json) {
  std::vector<std::string_view> optional = {"multiprocessors", "share_quantum", "saturating_share"};
  optional.insert(optional.end(), std::begin(kOfGpuBefore), std::end(kOfGpuBefore));
  json.require_keys({"name", "peak_flop_per_s", "memory_bytes", "reserved_memory_bytes"},
                    with_units(optional, kMemoryBandwidth));
  GpuSpec gpu;
  gpu.name = json.at("name").string();
  gpu.peak_flop_per_s = json.at("peak_flop_per_s").number_in(kMinFlopPerS, kMaxFlopPerS);
  gpu.memory_bandwidth_bytes_per_s = read_bandwidth(json, kMemoryBandwidth);
  gpu.memory = {json.at("memory_bytes").integer<std::int64_t>(1, kMaxMemory)};
  gpu.reserved_memory = {json.at("reserved_memory_bytes").integer<std::int64_t>(0, gpu.memory.count)};
  if (json.has("multiprocessors"))
    gpu.multiprocessors = json.at("multiprocessors").integer(1, kMaxMultiprocessors);
  if (json.has("share_quantum")) {
    if (gpu.multiprocessors == 0)
      json.at("share_quantum").refuse("expected 'multiprocessors' as well, found none");
    gpu.share_quantum = json.at("share_quantum").integer(1, gpu.multiprocessors);
  }
  if (json.has("saturating_share"))
    gpu.saturating_share = json.at("saturating_share").number_in(kMinEfficiency, 1);
  return gpu;
}

/// Reads a cluster's software: the figures of kernels and launches from `kernels`, the figures of messages
/// and reductions from `rest`. Both are the "software" object; in older files they are the GPU's and the
/// cluster's objects.
SoftwareSpec read_software(const JsonValue& kernels, const JsonValue& rest) {
  SoftwareSpec software;
  software.gemm_efficiency = read_efficiency(kernels.at("gemm_efficiency"));
  software.gemm_half_tokens = read_half(kernels.at("gemm_half_tokens"));
  software.gemm_half_width = read_half(kernels.at("gemm_half_width"));
  software.attention_forward_efficiency = read_efficiency(kernels.at("attention_forward_efficiency"));
  software.attention_backward_efficiency = read_efficiency(kernels.at("attention_backward_efficiency"));
  software.attention_half_tokens = read_half(kernels.at("attention_half_tokens"));
  software.memory_efficiency = read_efficiency(kernels.at("memory_efficiency"));
  software.kernel_overhead = read_latency(kernels.at("kernel_overhead_s"));
  if (kernels.has("layer_launch_s")) software.layer_launch = read_latency(kernels.at("layer_launch_s"));
  if (rest.has("message_overhead_s")) software.message_overhead = read_latency(rest.at("message_overhead_s"));
  if (const auto unit = unit_of_bandwidth(rest, kRingBandwidth)) {
    if (rest.at(kRingBandwidth[*unit]).number_in(0, kMaxBytesPerS / kBytesOfUnits[*unit]) > 0)
      software.node_ring_bandwidth_bytes_per_s = read_bandwidth(rest, kRingBandwidth);
  }
  return software;
}

SoftwareSpec read_software_object(const JsonValue& json) {
  json.require_keys(
      {"name", "gemm_efficiency", "gemm_half_tokens", "gemm_half_width", "attention_forward_efficiency",
       "attention_backward_efficiency", "attention_half_tokens", "memory_efficiency", "kernel_overhead_s"},
      with_units({"source", "layer_launch_s", "message_overhead_s", "tensor_overlap", "shared_cache_factor"},
                 kRingBandwidth));
  check_source(json);
  SoftwareSpec software = read_software(json, json);
  software.name = json.at("name").string();
  if (json.has("tensor_overlap")) software.tensor_overlap = json.at("tensor_overlap").number_in(0, 1);
  if (json.has("shared_cache_factor"))
    software.shared_cache_factor = json.at("shared_cache_factor").number_in(1, kMaxCacheFactor);
  return software;
}

/// Rejects software keys at their old places if there is also a "software" object.
void refuse_twice(const JsonValue& json, std::span<const std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (json.has(key)) json.at(key).refuse_type("this key only in 'software'");
  }
}

Link read_cluster_link(const JsonValue& json) {
  json.require_keys({"latency_s"}, with_units({kLineRateKey}, kLinkBandwidth));
  const double bandwidth = read_bandwidth(json, kLinkBandwidth);
  if (json.has(kLineRateKey)) {
    const double line_rate = json.at(kLineRateKey).number();
    if (bandwidth > line_rate) {
      json.at(kLinkBandwidth[*unit_of_bandwidth(json, kLinkBandwidth)])
          .refuse("expected at most the {:g} B/s of '{}', which messages cannot exceed, found {:g} B/s",
                  line_rate, kLineRateKey, bandwidth);
    }
  }
  return {read_latency(json.at("latency_s")), bandwidth};
}

/// Reads a group of nodes; its software may be the cluster's, if that has one.
NodeGroup read_node_group(const JsonValue& json, const std::optional<SoftwareSpec>& shared,
                          const FindCluster& find) {
  json.require_keys({"count", "gpu"}, {"software"});
  NodeGroup group;
  group.nodes = json.at("count").integer(1, kMaxNodes);
  std::optional<SoftwareSpec> software = shared;
  const JsonValue gpu = json.at("gpu");
  if (gpu.is_string() && find) {
    try {
      const ClusterSpec preset = find(gpu.string());
      group.gpu = preset.gpu;
      software = preset.software;
    } catch (const Error& error) {
      gpu.refuse(error.what());
    }
  } else {
    group.gpu = read_gpu(gpu);
    refuse_twice(gpu, kOfGpuBefore);
  }
  if (json.has("software")) software = read_software_object(json.at("software"));
  if (!software) {
    json.refuse(
        "expected 'software' here or at the top of the file, or a preset's name as 'gpu', found none");
  }
  group.software = *software;
  return group;
}

void read_nodes(const JsonValue& root, const FindCluster& find, ClusterSpec& cluster) {
  std::optional<SoftwareSpec> shared;
  if (root.has("software")) shared = read_software_object(root.at("software"));
  const JsonValue rows = root.at("nodes");
  std::vector<NodeGroup> groups;
  int nodes = 0;
  for (const JsonValue& row : rows.elements()) {
    groups.push_back(read_node_group(row, shared, find));
    nodes += groups.back().nodes;
    if (nodes > kMaxNodes) row.refuse("expected at most {} nodes in all, found {}", kMaxNodes, nodes);
  }
  if (groups.empty()) rows.refuse("expected at least one row, found none");
  cluster.software = shared ? *shared : groups.front().software;
  set_node_groups(cluster, std::move(groups));
}

LeafSwitches read_leaf(const JsonValue& json) {
  json.require_keys({"nodes", "oversubscription"});
  return {json.at("nodes").integer(1, kMaxNodes),
          json.at("oversubscription").number_in(1, kMaxOversubscription)};
}

}  // namespace

namespace {

/// Reads a second encoder and its connector.
SecondEncoder read_second(const JsonValue& json, const TransformerSpec& llm) {
  json.require_keys({"encoder", "connector"});
  const TransformerSpec encoder = read_module_spec(json.at("encoder"), 0);
  return {encoder, read_fitting_connector(json.at("connector"), encoder, llm)};
}

}  // namespace

ModelSpec parse_model(std::string_view json, const std::string& file) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root("dflop.model", kSpecsVersion);
  root.require_keys({"schema", "version", "name", "preprocess", "max_tokens", "encoder", "connector", "llm"},
                    {"source", "second"});
  check_source(root);
  ModelSpec model;
  model.name = root.at("name").string();
  model.preprocess = root.at("preprocess").string();
  const std::vector<std::string_view> rules = preprocess_rules();
  if (std::ranges::find(rules, model.preprocess) == rules.end())
    root.at("preprocess").refuse_type("one of {}", fmt::join(rules, ", "));
  model.max_tokens = root.at("max_tokens").integer<std::int64_t>(1, kSpecsMostTokens);
  model.encoder = read_module_spec(root.at("encoder"), 0);
  model.llm = read_module_spec(root.at("llm"), 1);
  model.connector = read_fitting_connector(root.at("connector"), model.encoder, model.llm);
  if (root.has("second")) model.second = read_second(root.at("second"), model.llm);
  return model;
}

ClusterSpec parse_cluster(std::string_view json, const std::string& file, const FindCluster& find) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root("dflop.cluster", kSpecsVersion);
  const bool has_nodes = root.has("nodes");
  root.require_keys(
      {"schema", "version", "name", "gpus_per_node", has_nodes ? "nodes" : "gpu", "intra_node", "inter_node"},
      with_units({"source", "leaf", "collectives", "software", "message_overhead_s", "fit", kGradeKey,
                  kAllowanceKey, kPlaceholderKey},
                 kRingBandwidth));
  check_source(root);
  read_cluster_notes(root);  // for people; only checked here
  ClusterSpec cluster;
  cluster.name = root.at("name").string();
  cluster.placeholder = root.has(kPlaceholderKey) && root.at(kPlaceholderKey).boolean();
  cluster.gpus_per_node = root.at("gpus_per_node").integer(1, kMaxGpusPerNode);
  if (!has_nodes) cluster.gpu = read_gpu(root.at("gpu"));
  cluster.intra_node = read_cluster_link(root.at("intra_node"));
  cluster.inter_node = read_cluster_link(root.at("inter_node"));
  if (root.has("leaf")) cluster.leaf = read_leaf(root.at("leaf"));
  if (root.has("collectives")) {
    cluster.collectives = root.at("collectives").choice<CollectiveAlgorithm>();
  }
  if (has_nodes || root.has("software")) {
    refuse_twice(root, kOfClusterBefore);
    refuse_twice(root, kRingBandwidth);
  }
  if (has_nodes) {
    read_nodes(root, find, cluster);
  } else if (root.has("software")) {
    cluster.software = read_software_object(root.at("software"));
    refuse_twice(root.at("gpu"), kOfGpuBefore);
  } else {
    cluster.software = read_software(root.at("gpu"), root);
  }
  if (root.has("fit")) root.at("fit").require_object();
  return cluster;
}

std::string changed_cluster(std::string_view cluster,
                            const std::vector<std::pair<std::string, double>>& numbers,
                            const nlohmann::ordered_json& members) {
  nlohmann::ordered_json file = nlohmann::ordered_json::parse(cluster);
  for (const auto& [path, number] : numbers) {
    const std::size_t dot = path.find('.');
    const std::string part = path.substr(0, dot);
    const std::string name = path.substr(dot + 1);
    // Older files have these keys under the GPU or at the root.
    const bool is_early = part == "software" && !file.contains(part);
    const bool is_of_gpu = std::ranges::find(kOfGpuBefore, name) != std::end(kOfGpuBefore);
    nlohmann::ordered_json& object = !is_early ? file[part] : is_of_gpu ? file["gpu"] : file;
    std::string key = name;
    double bytes = 1;
    for (const BandwidthKeys& keys : {kLinkBandwidth, kRingBandwidth}) {
      if (keys[0] != name) continue;
      for (std::size_t unit = 0; unit < keys.size(); ++unit) {
        if (!object.contains(keys[unit])) continue;
        key = keys[unit];
        bytes = kBytesOfUnits[unit];
      }
    }
    object[key] = number / bytes;
  }
  file.erase(std::string(kMadeBy));
  file.update(members);
  return file.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace dflop
