#include "experiments/presets/presets.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/refuse.hpp"
#include "core/support/did_you_mean.hpp"
#include "traces/families/hugging_face.hpp"
#include "traces/files/provenance.hpp"
#include "traces/files/specs.hpp"
#include "traces/text/csv.hpp"
#include "traces/text/strict_json.hpp"
#include "traces/text/text_file.hpp"
#include "traces/weights/own_head.hpp"

namespace dflop {
namespace {

constexpr int kMaxNodes = 4096;

bool is_path(std::string_view name) {
  return name.find('/') != std::string_view::npos || (name.size() > 5 && name.ends_with(".json"));
}

/// Returns whether a file can be read only once.
bool is_pipe(const std::string& name) {
  return is_path(name) && !std::filesystem::is_regular_file(name);
}

/// Returns the JSON text of a preset or file.
std::string find_json(std::string_view kind, const std::string& name) {
  if (is_path(name)) return read_text_file(name);
  std::vector<std::string_view> known;
  for (const Preset& preset : presets()) {
    if (preset.kind != kind) continue;
    if (preset.name == name) return std::string(preset.json);
    known.push_back(preset.name);
  }
  throw Error(ErrorKind::input,
              fmt::format("unknown {} '{}'; expected the path of a .json file{} or one of: {}{}",
                          kind.substr(0, kind.size() - 1), name,
                          kind == "models" ? ", the folder of a Transformers model" : "",
                          fmt::join(known, ", "), did_you_mean(name, known)));
}

/// NamedNodes are the parts of "name:4"; `count` is empty without a suffix.
struct NamedNodes {
  std::string name;
  std::optional<int> count;
};

NamedNodes split_nodes(const std::string& name) {
  const std::size_t colon = name.rfind(':');
  if (colon == std::string::npos || is_path(name.substr(colon)))
    return {name, {}};  // the colon is part of a
                        // path
  int nodes = 0;
  if (!parse_number(std::string_view(name).substr(colon + 1), nodes) || nodes < 1 || nodes > kMaxNodes) {
    throw Error(ErrorKind::input, "cluster '" + name + "': expected a number of nodes from 1 to " +
                                      std::to_string(kMaxNodes) + " after ':', found '" +
                                      name.substr(colon + 1) + "'");
  }
  return {name.substr(0, colon), nodes};
}

/// Splits "a:15+b:1" into its parts. A file whose name has a '+' is one part.
std::vector<std::string> split_types(const std::string& name) {
  const std::string whole = name.substr(0, name.rfind(':'));
  for (const std::string& file : {name, whole}) {
    if (is_path(file) && (file.find('+') == std::string::npos || std::filesystem::exists(file)))
      return {name};
  }
  std::vector<std::string> parts(1);
  for (const char c : name) {
    if (c == '+')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

ClusterSpec find_uniform_preset(const std::string& name) {
  if (is_path(name)) throw Error(ErrorKind::input, "expected the name of a preset, found '" + name + "'");
  return parse_cluster(find_json("clusters", name), "preset " + name);
}

/// Rejects a config.json of Transformers: a model is its folder.
void refuse_transformers_config(const std::string& json, const std::string& file) {
  if (JsonDocument(json, file).root().has("model_type")) {
    refuse_input(file,
                 "expected schema 'dflop.model', found a Transformers config: to use it, give its folder");
  }
}

/// Finds a preset or file and its text, with the number of nodes from its name or the file. Does not fill in
/// notes.
ClusterFile find_one_type(const std::string& text) {
  const auto [name, count] = split_nodes(text);
  if (name.empty()) {
    throw Error(
        ErrorKind::input,
        fmt::format("cluster '{}': expected names with numbers of nodes, such as a100-80g:15+h100:1", text));
  }
  std::string json = find_json("clusters", name);
  ClusterSpec cluster = parse_cluster(json, is_path(name) ? name : "preset " + name, find_uniform_preset);
  if (cluster.nodes > 1 && count && *count != cluster.nodes) {
    throw Error(ErrorKind::input,
                fmt::format("cluster '{}': its file has {} nodes; expected ':{}' or no number after its "
                            "name, found ':{}'",
                            text, cluster.nodes, cluster.nodes, *count));
  }
  if (count) cluster.nodes = *count;
  return {std::move(cluster), {}, std::move(json)};
}

}  // namespace

std::vector<std::string> preset_names(std::string_view kind) {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) {
    if (preset.kind == kind) names.emplace_back(preset.name);
  }
  return names;
}

namespace {

/// Returns the config.json of a Hugging Face model folder; nothing if the name is not a folder.
std::optional<std::string> config_of_folder(const std::string& name) {
  if (!is_model_folder(name)) return {};
  std::error_code failed;
  const std::filesystem::path config = std::filesystem::path(name) / "config.json";
  if (std::filesystem::exists(config, failed)) return config.string();
  throw Error(ErrorKind::input,
              fmt::format("folder '{}': expected a Transformers model with a config.json, found none", name));
}

}  // namespace

ModelSpec find_model(const std::string& name) {
  if (const std::optional<std::string> config = config_of_folder(name)) {
    ModelSpec model = parse_hugging_face(read_text_file(*config), *config, has_own_head(name));
    model.name = name;
    return model;
  }
  const std::string json = find_json("models", name);
  if (is_path(name)) refuse_transformers_config(json, name);
  ModelSpec model = parse_model(json, is_path(name) ? name : "preset " + name);
  model.name = name;  // plan files refer to the model by this name
  return model;
}

ClusterSpec find_cluster(const std::string& name) {
  const std::vector<std::string> parts = split_types(name);
  std::vector<ClusterSpec> types;  // read only once each, because a file may be a pipe
  for (const std::string& part : parts) types.push_back(find_one_type(part).cluster);
  ClusterSpec cluster = types.front();
  std::vector<NodeGroup> groups;
  int nodes = 0;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const ClusterSpec& type = types[p];
    if (type.gpus_per_node != cluster.gpus_per_node) {
      throw Error(ErrorKind::input,
                  fmt::format("cluster '{}': expected '{}' to have as many GPUs per node as '{}', {}, "
                              "found {}",
                              name, parts[p], parts.front(), cluster.gpus_per_node, type.gpus_per_node));
    }
    nodes += type.nodes;
    cluster.placeholder = cluster.placeholder || type.placeholder;
    if (type.is_mixed()) {
      groups.insert(groups.end(), type.node_groups.begin(), type.node_groups.end());
    } else {
      groups.push_back({type.nodes, type.gpu, type.software});
    }
  }
  if (nodes > kMaxNodes) {
    throw Error(ErrorKind::input, fmt::format("cluster '{}': expected at most {} nodes in all, found {}",
                                              name, kMaxNodes, nodes));
  }
  if (parts.size() > 1) set_node_groups(cluster, std::move(groups));
  cluster.name = name;
  return cluster;
}

ClusterSpec find_uniform_cluster(const std::string& name) {
  ClusterSpec cluster = find_cluster(name);
  if (!cluster.is_mixed()) return cluster;
  throw Error(ErrorKind::input, fmt::format("cluster '{}': expected GPUs of one type, found several", name));
}

ClusterFile find_cluster_file(const std::string& name) {
  if (split_types(name).size() > 1)
    throw Error(ErrorKind::input,
                fmt::format("cluster '{}': expected one preset or file, found several", name));
  ClusterFile file = find_one_type(name);
  file.cluster.name = name;
  const JsonDocument document(file.json, name);
  const JsonValue root = document.root("dflop.cluster", 1);
  if (root.has("nodes"))
    root.at("nodes").refuse("expected 'gpu' and 'software' of one GPU type instead, found 'nodes'");
  file.notes = read_cluster_notes(root);
  return file;
}

std::vector<NamedNotes> find_cluster_notes(const std::string& name) {
  std::vector<NamedNotes> all;
  for (const std::string& part : split_types(name)) {
    const std::string base = split_nodes(part).name;
    const auto same = [&](const NamedNotes& other) { return other.name == base; };
    if (std::ranges::any_of(all, same)) continue;
    all.push_back({base, {}});
    if (!is_pipe(base))
      all.back().notes =
          parse_cluster_notes(find_json("clusters", base), is_path(base) ? base : "preset " + base);
  }
  return all;
}

std::string cluster_text(const std::string& name) {
  std::string text;
  for (const std::string& part : split_types(name)) {
    const auto [base, count] = split_nodes(part);
    text += find_json("clusters", base) + ':' + std::to_string(count.value_or(1));
  }
  return text;
}

std::string with_nodes(const std::string& cluster, std::int64_t nodes) {
  return says_nodes(cluster) ? cluster : fmt::format("{}:{}", cluster, nodes);
}

bool says_nodes(const std::string& cluster) {
  if (split_types(cluster).size() > 1) return true;
  return !split_nodes(cluster).count && find_cluster(cluster).nodes > 1;
}

bool is_model_folder(const std::string& name) {
  std::error_code failed;
  return std::filesystem::is_directory(name, failed);
}

std::string model_hash(const std::string& name) {
  if (is_model_folder(name)) return content_hash(read_text_file(*config_of_folder(name)));
  return is_pipe(name) ? "" : content_hash(find_json("models", name));
}

std::string cluster_hash(const std::string& name) {
  if (is_pipe(split_nodes(name).name)) return "";
  return content_hash(cluster_text(name));
}

}  // namespace dflop
