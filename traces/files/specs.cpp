#include "traces/files/specs.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.hpp"
#include "traces/files/cluster_notes.hpp"
#include "traces/preprocess/preprocess.hpp"
#include "traces/text/json_writer.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {
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

/// TransformerLimits are the allowed sizes of a module.
struct TransformerLimits {
  int layers;
  int width;
  int heads;
  int least_vocabulary;  ///< 0 for an encoder, which has neither embedding nor vocabulary head
  int vocabulary;
};

TransformerSpec read_transformer(const JsonValue& json, const TransformerLimits& limits,
                                 const std::vector<std::string_view>& optional = {}) {
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

ConnectorSpec read_connector(const JsonValue& json, int most_width, int most_merge) {
  json.require_keys({"widths", "merge"});
  const std::vector<std::int64_t> widths = json.at("widths").integers(1, most_width);
  return {{widths.begin(), widths.end()}, json.at("merge").integer(1, most_merge)};
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

ModelSpec parse_model(std::string_view json, const std::string& file) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root("dflop.model", kSpecsVersion);
  root.require_keys({"schema", "version", "name", "preprocess", "max_tokens", "encoder", "connector", "llm"},
                    {"source"});
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

namespace {

constexpr std::string_view kProfileSchema = "dflop.profile";
constexpr int kProfileVersion = 3;
constexpr std::int64_t kProfileMostTokens = std::int64_t{1} << 32;
constexpr int kProfileMostRanks = 1 << 20;
constexpr int kProfileMostAlignment = 1 << 10;
constexpr int kProfileMostSize = 1 << 26;
constexpr double kMaxFactor = 1e3;
constexpr double kProfileMostSeconds = 1e6;
constexpr double kMaxPerUnit = 1e-3;  // seconds a byte or parameter
constexpr double kMaxBytesPerToken = 1e12;
constexpr std::string_view kActivation = "activation_bytes_per_token";
constexpr std::string_view kForwardBuffers = "forward_buffer_bytes_per_token";
constexpr std::string_view kBackwardBuffers = "backward_buffer_bytes_per_token";

std::string_view unit_name(std::size_t unit) {
  return to_string(static_cast<ProfileUnit>(unit));
}

void write_transformer(JsonWriter& writer, std::string_view key, const TransformerSpec& spec) {
  writer.begin_object(key);
  writer.field("name", spec.name);
  writer.field("layers", spec.layers);
  writer.field("hidden", spec.hidden);
  writer.field("ffn", spec.ffn);
  writer.field("heads", spec.heads);
  writer.field("kv_heads", spec.kv_heads);
  writer.field("head_dim", spec.head_dim);
  writer.field("gated_mlp", spec.gated_mlp);
  writer.field("causal", spec.causal);
  writer.field("vocabulary", spec.vocabulary);
  if (spec.tied_embeddings) writer.field("tied_embeddings", true);
  if (spec.logits_at_once > 0) writer.field("logits_at_once", spec.logits_at_once);
  writer.end_object();
}

void write_model(JsonWriter& writer, const ModelSpec& model) {
  writer.begin_object("model");
  writer.field("name", model.name);
  if (model.encoder.layers > 0) {
    write_transformer(writer, "encoder", model.encoder);
    writer.begin_object("connector");
    writer.row("widths", model.connector.widths);
    writer.field("merge", model.connector.merge);
    writer.end_object();
  }
  write_transformer(writer, "llm", model.llm);
  writer.end_object();
}

/// Reads a model, which may have neither encoder nor connector.
ModelSpec read_model(const JsonValue& json) {
  json.require_keys({"name", "llm"}, {"encoder", "connector"});
  ModelSpec model;
  model.name = json.at("name").string();
  constexpr TransformerLimits kLimits{kProfileMostSize, kProfileMostSize, kProfileMostSize, 0,
                                      kProfileMostSize};
  if (json.has("encoder") || json.has("connector")) {
    model.encoder = read_transformer(json.at("encoder"), kLimits);
    model.connector = read_connector(json.at("connector"), kProfileMostSize, kProfileMostSize);
  }
  const JsonValue llm = json.at("llm");
  model.llm = read_transformer(llm, kLimits, {"tied_embeddings", "logits_at_once"});
  if (llm.has("tied_embeddings")) model.llm.tied_embeddings = llm.at("tied_embeddings").boolean();
  return model;
}

void write_line(JsonWriter& writer, const ProfileLine& line, std::string_view per_unit) {
  writer.field("start_s", line.start_s);
  writer.field(per_unit, line.s_per_unit);
}

ProfileLine read_line(const JsonValue& json, std::string_view per_unit) {
  return {json.at("start_s").number_in(0, kProfileMostSeconds), json.at(per_unit).number_in(0, kMaxPerUnit)};
}

void write_points(JsonWriter& writer, std::string_view unit, const UnitPoints& points) {
  writer.begin_object(unit);
  writer.row("tokens", points, [](const ProfilePoint& p) { return p.tokens; });
  writer.row("lengths", points, [](const ProfilePoint& p) { return p.length; });
  writer.row("forward_s", points, [](const ProfilePoint& p) { return p.forward_s; });
  writer.row("backward_input_s", points, [](const ProfilePoint& p) { return p.backward_input_s; });
  writer.row("backward_weight_s", points, [](const ProfilePoint& p) { return p.backward_weight_s; });
  const auto has = [](const ProfilePoint& p) { return p.recompute_s.has_value(); };
  if (std::all_of(points.begin(), points.end(), has)) {
    writer.row("recompute_s", points, [](const ProfilePoint& p) { return *p.recompute_s; });
  }
  if (std::all_of(points.begin(), points.end(), [](const ProfilePoint& p) { return p.host_s.has_value(); }))
    writer.row("host_s", points, [](const ProfilePoint& p) { return *p.host_s; });
  writer.end_object();
}

/// Requires ascending numbers. If `second` is given, equal numbers may follow each other as long as it rises.
void require_rising(const JsonValue& json, const std::vector<std::int64_t>& numbers,
                    const std::vector<std::int64_t>* second = nullptr) {
  for (std::size_t i = 1; i < numbers.size(); ++i) {
    const bool rises = second != nullptr && (*second)[i] > (*second)[i - 1];
    if (numbers[i] > numbers[i - 1] || (numbers[i] == numbers[i - 1] && rises)) continue;
    json.elements()[i].refuse_type("a number above the previous one, {}", numbers[i - 1]);
  }
}

UnitPoints read_points(const JsonValue& json, bool attention) {
  json.require_keys({"tokens", "lengths", "forward_s", "backward_input_s", "backward_weight_s"},
                    {"recompute_s", "host_s"});
  const std::vector<std::int64_t> tokens = json.at("tokens").integers(1, kProfileMostTokens);
  if (tokens.empty()) json.at("tokens").refuse_type("at least one number");
  const std::vector<std::int64_t> lengths =
      json.at("lengths").integers(attention ? 1 : 0, attention ? kProfileMostTokens : 0);
  if (lengths.size() != tokens.size()) {
    json.at("lengths").refuse_type("{} numbers", tokens.size());
  }
  attention ? require_rising(json.at("lengths"), lengths, &tokens)
            : require_rising(json.at("tokens"), tokens);
  for (std::size_t i = 0; attention && i < tokens.size(); ++i) {
    if (tokens[i] < lengths[i])
      json.at("tokens").elements()[i].refuse_type("at least the {} tokens of a sequence", lengths[i]);
  }
  const auto seconds = [&](std::string_view key) {
    return json.at(key).numbers(tokens.size(), 0, kProfileMostSeconds);
  };
  const auto forward = seconds("forward_s");
  const auto input = seconds("backward_input_s");
  const auto weight = seconds("backward_weight_s");
  UnitPoints points;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    points.push_back({tokens[i], lengths[i], forward[i], input[i], weight[i]});
  }
  if (json.has("recompute_s")) {
    const auto recompute = seconds("recompute_s");
    for (std::size_t i = 0; i < points.size(); ++i) points[i].recompute_s = recompute[i];
  }
  if (json.has("host_s")) {
    const auto host = seconds("host_s");
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (host[i] > forward[i])
        json.at("host_s").elements()[i].refuse_type("at most the forward, {}, of which it is a part",
                                                    forward[i]);
      points[i].host_s = host[i];
    }
  }
  return points;
}

void write_bytes(JsonWriter& writer, std::string_view key, const BytesPerToken& bytes) {
  writer.begin_object(key);
  writer.row("encoder_layer", bytes.encoder_layer);
  writer.row("llm_layer", bytes.llm_layer);
  writer.field("patches", bytes.patches);
  writer.field("connector", bytes.connector);
  writer.field("embedding", bytes.embedding);
  writer.field("head", bytes.head);
  writer.end_object();
}

BytesPerToken read_bytes(const JsonValue& json) {
  json.require_keys({"encoder_layer", "llm_layer", "patches", "connector", "embedding", "head"});
  const auto layer = [&](std::string_view key) {
    const std::vector<double> row = json.at(key).numbers(3, 0, kMaxBytesPerToken);
    return std::array<double, 3>{row[0], row[1], row[2]};
  };
  const auto end = [&](std::string_view key) { return json.at(key).number_in(0, kMaxBytesPerToken); };
  return {layer("encoder_layer"), layer("llm_layer"), end("patches"),
          end("connector"),       end("embedding"),   end("head")};
}

void write_part(JsonWriter& writer, const PartProfile& part) {
  writer.begin_object("optimizer");
  write_line(writer, part.optimizer, "s_per_parameter");
  writer.end_object();
  writer.begin_object("beside_neighbour");
  writer.field("optimizer", part.optimizer_beside);
  for (std::size_t u = 0; u < kProfileUnits; ++u) {
    const PassFactors& factors = part.beside[u];
    writer.row(unit_name(u), std::array{factors.forward, factors.backward_input, factors.backward_weight});
  }
  writer.end_object();
}

PartProfile read_part(const JsonValue& json) {
  PartProfile part;
  json.at("optimizer").require_keys({"start_s", "s_per_parameter"});
  part.optimizer = read_line(json.at("optimizer"), "s_per_parameter");
  const JsonValue beside = json.at("beside_neighbour");
  std::vector<std::string_view> names = {"optimizer"};
  for (std::size_t u = 0; u < kProfileUnits; ++u) names.push_back(unit_name(u));
  beside.require_keys(names);
  part.optimizer_beside = beside.at("optimizer").number_in(0, kMaxFactor);
  for (std::size_t u = 0; u < kProfileUnits; ++u) {
    const std::vector<double> row = beside.at(unit_name(u)).numbers(3, 0, kMaxFactor);
    part.beside[u] = {row[0], row[1], row[2]};
  }
  return part;
}

/// Reads the number of the device's `quanta` that tables are for; in older files, which had no parts, all.
void read_quanta(const JsonValue& json, int quanta, TpProfile& profile) {
  profile.quanta = json.has("quanta") ? json.at("quanta").integer(1, quanta) : quanta;
  const bool is_part = profile.quanta < quanta;
  for (const char* key : {"optimizer", "beside_neighbour"}) {
    if (json.has(key) == is_part) continue;
    if (is_part) json.at(key);  // reports that it is missing
    json.at(key).refuse("expected this key only in tables of device parts, found it for {} of {} quanta",
                        profile.quanta, quanta);
  }
  if (is_part) profile.part = read_part(json);
}

TpMode read_mode(const JsonValue& json) {
  TpMode mode{json.at("tp").integer(1, kProfileMostRanks), false};
  if (json.has("sequence_parallel")) mode.sequence_parallel = json.at("sequence_parallel").boolean();
  if (mode.sequence_parallel && mode.tp == 1)
    json.at("tp").refuse_type("at least 2, for sequence parallelism");
  return mode;
}

/// Requires tables in ascending order of mode, then quanta.
void require_after(const JsonValue& json, const TpProfile& own, const std::vector<TpProfile>& before,
                   int quanta) {
  if (before.empty()) return;
  const TpProfile& last = before.back();
  if (std::pair(own.mode, own.quanta) > std::pair(last.mode, last.quanta)) return;
  json.at("tp").refuse_type("tables in increasing order, after {}",
                            to_string(last.mode, last.quanta, quanta));
}

/// Reads the tables of one mode of a model; `activation` is what version 1 stores outside the tables.
TpProfile read_tp(const JsonValue& json, const ModelSpec& model, const std::vector<TpProfile>& before,
                  const std::optional<BytesPerToken>& activation, int quanta) {
  TpProfile profile;
  if (activation) {
    json.require_keys({"tp", "units"});
    profile.activation = *activation;
  } else {
    json.require_keys({"tp", "units", kActivation, kForwardBuffers, kBackwardBuffers},
                      {"sequence_parallel", "quanta", "optimizer", "beside_neighbour"});
    profile.activation = read_bytes(json.at(kActivation));
    profile.forward_buffers = read_bytes(json.at(kForwardBuffers));
    profile.backward_buffers = read_bytes(json.at(kBackwardBuffers));
  }
  profile.mode = read_mode(json);
  read_quanta(json, quanta, profile);
  require_after(json, profile, before, quanta);
  const JsonValue units = json.at("units");
  std::vector<std::string_view> names;
  std::vector<ProfileUnit> measured;
  for (const auto unit : all_of<ProfileUnit>()) {
    if (!has_unit(model, unit)) continue;
    measured.push_back(unit);
    names.push_back(to_string(unit));
  }
  units.require_keys(names);
  for (const ProfileUnit unit : measured) {
    profile.of(unit) = read_points(units.at(to_string(unit)), is_attention(unit));
  }
  return profile;
}

/// Counts the patches' whole forward as host time in a GPU profile older than version 3: there the host
/// converted pixels while the device waited, which took almost all of the time.
void name_host_times(ProfileTables& profile) {
  if (!profile.software.starts_with("CUDA driver")) return;
  for (TpProfile& tp : profile.tp) {
    for (ProfilePoint& point : tp.of(ProfileUnit::patches)) point.host_s = point.forward_s;
  }
}

std::map<int, ProfileLine> read_all_reduce(const JsonValue& json) {
  std::map<int, ProfileLine> lines;
  for (const JsonValue& element : json.elements()) {
    element.require_keys({"ranks", "start_s", "s_per_byte"});
    const int least = lines.empty() ? 2 : lines.rbegin()->first + 1;
    const int ranks = element.at("ranks").integer(least, kProfileMostRanks);
    lines[ranks] = read_line(element, "s_per_byte");
  }
  return lines;
}

}  // namespace

std::string to_json(const ProfileTables& profile) {
  JsonWriter writer(kProfileSchema, kProfileVersion);
  writer.field("dflop_version", profile.dflop_version);
  writer.field("device", profile.device);
  writer.field("cpu", profile.cpu);
  if (!profile.software.empty()) writer.field("software", profile.software);
  writer.field("dtype", profile.dtype);
  if (!profile.kernels.empty()) writer.field("kernels", profile.kernels);
  writer.field("value_bytes", profile.value_bytes);
  writer.field("sum_bytes", profile.sum_bytes);
  if (profile.row_alignment != 1) writer.field("row_alignment", profile.row_alignment);
  write_model(writer, profile.model);
  writer.begin_object("settings");
  writer.field("seed", profile.settings.seed);
  writer.field("budget_s", profile.settings.budget_s);
  writer.field("most_tokens", profile.settings.most_tokens);
  if (profile.settings.busy_ranks != 1) writer.field("busy_ranks", profile.settings.busy_ranks);
  writer.end_object();
  if (profile.quanta != 1) writer.field("quanta", profile.quanta);
  if (profile.windows) {
    writer.begin_object("encoder_windows");
    writer.field("layers", profile.windows->layers);
    writer.field("tokens", profile.windows->tokens);
    writer.end_object();
  }
  writer.begin_array("tables");
  for (const TpProfile& tp : profile.tp) {
    writer.begin_object();
    writer.field("tp", tp.mode.tp);
    if (tp.mode.sequence_parallel) writer.field("sequence_parallel", true);
    if (tp.part) writer.field("quanta", tp.quanta);
    if (tp.part) write_part(writer, *tp.part);
    write_bytes(writer, kActivation, tp.activation);
    write_bytes(writer, kForwardBuffers, tp.forward_buffers);
    write_bytes(writer, kBackwardBuffers, tp.backward_buffers);
    writer.begin_object("units");
    for (std::size_t u = 0; u < kProfileUnits; ++u) {
      if (has_unit(profile.model, static_cast<ProfileUnit>(u)))
        write_points(writer, unit_name(u), tp.units[u]);
    }
    writer.end_object();
    writer.end_object();
  }
  writer.end_array();
  writer.begin_object("optimizer");
  write_line(writer, profile.optimizer, "s_per_parameter");
  writer.end_object();
  if (profile.norm != ProfileLine{}) {
    writer.begin_object("norm");
    write_line(writer, profile.norm, "s_per_parameter");
    writer.end_object();
  }
  writer.begin_object("message");
  write_line(writer, profile.message, "s_per_byte");
  writer.end_object();
  writer.begin_array("all_reduce");
  for (const auto& [ranks, line] : profile.all_reduce) {
    writer.begin_object();
    writer.field("ranks", ranks);
    write_line(writer, line, "s_per_byte");
    writer.end_object();
  }
  writer.end_array();
  return writer.finish();
}

ProfileTables parse_profile_tables(std::string_view json, const std::string& file) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root(kProfileSchema, kProfileVersion);
  const std::vector<std::string_view> required = {
      "schema",    "version", "dflop_version", "device", "cpu",       "dtype",   "value_bytes",
      "sum_bytes", "model",   "settings",      "tables", "optimizer", "message", "all_reduce"};
  std::optional<BytesPerToken> activation;
  const int version = root.at("version").integer(1, kProfileVersion);
  if (version == 1) {
    root.require_keys(required, {"software", "kernels", kActivation});
    activation = read_bytes(root.at(kActivation));
  } else {
    root.require_keys(required,
                      {"software", "kernels", "row_alignment", "quanta", "encoder_windows", "norm"});
  }
  ProfileTables profile;
  profile.dflop_version = root.at("dflop_version").string();
  profile.device = root.at("device").string();
  profile.cpu = root.at("cpu").string();
  if (root.has("software")) profile.software = root.at("software").string();
  profile.dtype = root.at("dtype").string();
  if (root.has("kernels")) profile.kernels = root.at("kernels").string();
  profile.value_bytes = root.at("value_bytes").integer<std::int64_t>(1, 16);
  profile.sum_bytes = root.at("sum_bytes").integer<std::int64_t>(1, 16);
  if (root.has("row_alignment"))
    profile.row_alignment = root.at("row_alignment").integer(1, kProfileMostAlignment);
  profile.model = read_model(root.at("model"));
  const JsonValue settings = root.at("settings");
  settings.require_keys({"seed", "budget_s", "most_tokens"}, {"busy_ranks"});
  profile.settings = {
      settings.at("seed").unsigned_integer(), settings.at("budget_s").number_in(0, kProfileMostSeconds),
      settings.at("most_tokens").integer<std::int64_t>(1, kProfileMostTokens),
      settings.has("busy_ranks") ? settings.at("busy_ranks").integer(1, kProfileMostRanks) : 1};
  if (root.has("quanta")) profile.quanta = root.at("quanta").integer(1, kProfileMostRanks);
  if (root.has("encoder_windows")) {
    const JsonValue windows = root.at("encoder_windows");
    windows.require_keys({"layers", "tokens"});
    profile.windows = {windows.at("layers").integer(1, profile.model.encoder.layers),
                       windows.at("tokens").integer<std::int64_t>(1, kProfileMostTokens)};
  }
  for (const JsonValue& element : root.at("tables").elements()) {
    profile.tp.push_back(read_tp(element, profile.model, profile.tp, activation, profile.quanta));
  }
  if (profile.tp.empty()) root.at("tables").refuse_type("at least one table");
  if (version < 3) name_host_times(profile);
  root.at("optimizer").require_keys({"start_s", "s_per_parameter"});
  profile.optimizer = read_line(root.at("optimizer"), "s_per_parameter");
  if (root.has("norm")) {
    root.at("norm").require_keys({"start_s", "s_per_parameter"});
    profile.norm = read_line(root.at("norm"), "s_per_parameter");
  }
  root.at("message").require_keys({"start_s", "s_per_byte"});
  profile.message = read_line(root.at("message"), "s_per_byte");
  profile.all_reduce = read_all_reduce(root.at("all_reduce"));
  return profile;
}

}  // namespace dflop
