#include "experiments/presets/presets.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/support/did_you_mean.hpp"
#include "traces/files/provenance.hpp"
#include "traces/files/specs.hpp"
#include "traces/text/csv.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

constexpr int kMostNodes = 4096;

bool is_path(std::string_view name) {
  return name.find('/') != std::string_view::npos || (name.size() > 5 && name.ends_with(".json"));
}

/// Returns whether a file can be read but once.
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
  throw Error(
      ErrorKind::input,
      fmt::format("unknown {} '{}'; expected the path of a .json file or one of: {}{}",
                  kind.substr(0, kind.size() - 1), name, fmt::join(known, ", "), did_you_mean(name, known)));
}

/// Splits "name:4" into the name and 4; without a suffix, 1 node.
std::pair<std::string, int> split_nodes(const std::string& name) {
  const std::size_t colon = name.rfind(':');
  if (colon == std::string::npos || is_path(name.substr(colon))) return {name, 1};  // a colon inside a path
  int nodes = 0;
  if (!parse_number(std::string_view(name).substr(colon + 1), nodes) || nodes < 1 || nodes > kMostNodes) {
    throw Error(ErrorKind::input, "cluster '" + name + "': expected a number of nodes from 1 to " +
                                      std::to_string(kMostNodes) + " after ':', found '" +
                                      name.substr(colon + 1) + "'");
  }
  return {name.substr(0, colon), nodes};
}

}  // namespace

std::vector<std::string> preset_names(std::string_view kind) {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) {
    if (preset.kind == kind) names.emplace_back(preset.name);
  }
  return names;
}

ModelSpec find_model(const std::string& name) {
  ModelSpec model = parse_model(find_json("models", name), is_path(name) ? name : "preset " + name);
  model.name = name;  // a plan finds its model again by this
  return model;
}

ClusterSpec find_cluster(const std::string& name) {
  const auto [base, nodes] = split_nodes(name);
  ClusterSpec cluster = parse_cluster(find_json("clusters", base), is_path(base) ? base : "preset " + base);
  cluster.name = name;
  cluster.nodes = nodes;
  return cluster;
}

std::string model_hash(const std::string& name) {
  return is_pipe(name) ? "" : content_hash(find_json("models", name));
}

std::string cluster_hash(const std::string& name) {
  const auto [base, nodes] = split_nodes(name);
  return is_pipe(base) ? "" : content_hash(find_json("clusters", base) + ':' + std::to_string(nodes));
}

}  // namespace dflop
