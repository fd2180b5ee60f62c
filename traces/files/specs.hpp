// This file reads models and clusters, such as those in experiments/presets, and stores profile tables, the
// measured times of a model's parts.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/cluster.hpp"
#include "core/measured/profile.hpp"
#include "core/model.hpp"

namespace dflop {

/// Reads a model of schema "dflop.model". `file` names the text in errors.
/// @throws Error (input) also if widths do not fit together (KV heads that do not divide the heads, a
/// connector that does not lead from the encoder to the LLM).
ModelSpec parse_model(std::string_view json, const std::string& file);

/// A FindCluster returns the named preset. @throws Error for an unknown name
using FindCluster = std::function<ClusterSpec(const std::string&)>;

/// Reads a cluster of schema "dflop.cluster" with one node; the caller sets the number of nodes. Older files,
/// which have the keys of "software" under "gpu" and at the top, still load as the same cluster. A bandwidth
/// is in bytes a second (..._bytes_per_s), in 1e9 bits (..._gbit_per_s) or in 1e9 bytes (..._gbyte_per_s). A
/// file with "nodes" instead of "gpu" describes a whole cluster: one row for each group of nodes, with its
/// count and its GPU, which is an object or the name of a preset that `find` knows. A row's kernel figures
/// come from its own "software", else from the preset, else from the cluster's "software". The cluster's
/// "software" also has the figures for messages and reductions; without it, the first row's figures are used.
/// Notes on how far figures can be trusted (traces/files/cluster_notes.hpp) are checked and ignored.
/// @throws Error (input) also for a key that is both in "software" and at its older place, and for a
/// bandwidth in two units
ClusterSpec parse_cluster(std::string_view json, const std::string& file, const FindCluster& find = {});

/// Returns the text of a cluster's file with some values changed. The file must not have "nodes". All other
/// values stay, except "made_by", which is left out. `numbers` are in bytes and seconds, by key, such as
/// "software.gemm_efficiency"; each is written at the place and in the unit that the file uses. `members`
/// replace members of the root.
std::string changed_cluster(std::string_view cluster,
                            const std::vector<std::pair<std::string, double>>& numbers,
                            const nlohmann::ordered_json& members);

/// Returns a file of schema "dflop.profile", version 2. Some keys are written only if needed:
/// settings.busy_ranks if it is not 1, recompute_s for units whose points all have it, sequence_parallel if
/// it is on, and quanta if a device has more than one; tables without quanta are for the whole device.
std::string to_json(const ProfileTables& profile);

/// Reads profile tables. Version 1 stores activations only for tp 1, outside the tables, and no buffers.
/// `file` names the text in errors.
/// @throws Error (input) naming the key, the expected and the found value; also if the points of a table do
/// not rise.
ProfileTables parse_profile_tables(std::string_view json, const std::string& file);

}  // namespace dflop
