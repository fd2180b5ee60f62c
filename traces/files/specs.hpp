// ModelSpec and ClusterSpec are read from JSON, as in experiments/presets.
#pragma once

#include <string>
#include <string_view>

#include "core/cluster.hpp"
#include "core/model.hpp"

namespace dflop {

/// Reads a model of schema "dflop.model". `file` is for error places.
/// @throws Error (input) also where widths do not fit together (KV heads that do not divide the heads, a
/// connector that does not lead from the encoder to the LLM).
ModelSpec parse_model(std::string_view json, const std::string& file);

/// Reads a cluster of schema "dflop.cluster": one node of it, the caller sets how many there are.
/// @throws Error (input)
ClusterSpec parse_cluster(std::string_view json, const std::string& file);

/// Returns a file that parse_cluster reads as the same cluster. `source` says where the figures come from;
/// `fit`, a JSON object, how they were fitted.
std::string to_json(const ClusterSpec& cluster, std::string_view source, std::string_view fit);

}  // namespace dflop
