// Files say what models and clusters are, as in experiments/presets, and keep what was measured of them in
// profile tables.
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

/// Reads a model of schema "dflop.model". `file` is for error places.
/// @throws Error (input) also where widths do not fit together (KV heads that do not divide the heads, a
/// connector that does not lead from the encoder to the LLM).
ModelSpec parse_model(std::string_view json, const std::string& file);

/// A FindCluster returns the preset of a name. @throws Error for another name
using FindCluster = std::function<ClusterSpec(const std::string&)>;

/// Reads a cluster of schema "dflop.cluster": one node of it, the caller sets how many there are. Files of
/// before have the keys of "software" under "gpu" and at the top, and are read as the same cluster.
/// A bandwidth is in bytes a second (..._bytes_per_s), in 1e9 bits (..._gbit_per_s) or in 1e9 bytes
/// (..._gbyte_per_s). A file with "nodes" in place of "gpu" is of a whole cluster: a row for each group of
/// nodes, with its count and its GPU, an object or the name of a preset that `find` knows, whose kernels it
/// then has. Kernels of other rows are their own "software" or the cluster's, which also has the figures of
/// messages and reductions, and without which the first row's count. Notes of how far figures can be trusted
/// (traces/files/cluster_notes.hpp) are checked and passed over.
/// @throws Error (input) also for a key that is in both places, and a bandwidth in two units
ClusterSpec parse_cluster(std::string_view json, const std::string& file, const FindCluster& find = {});

/// Returns a cluster's file, which has no "nodes", with some values changed and everything else unchanged but
/// for what made the file, which is left out. `numbers` are in bytes and seconds, by key, such as
/// "software.gemm_efficiency"; each is written at the place and in the unit that the file has. `members`
/// replace those of the root.
std::string changed_cluster(std::string_view cluster,
                            const std::vector<std::pair<std::string, double>>& numbers,
                            const nlohmann::ordered_json& members);

/// Returns a file of schema "dflop.profile", version 2. settings.busy_ranks is written only where it is not
/// 1, recompute_s only of units all of whose points have it, sequence_parallel where it is on, and quanta
/// where a device has more than one; tables without a number of them are of all.
std::string to_json(const ProfileTables& profile);

/// Reads profile tables. Those of version 1 have activations of tp 1 alone, beside the tables, and no
/// buffers. `file` is the text's place for errors.
/// @throws Error (input) naming the key, what was expected and found; also for points that do not rise.
ProfileTables parse_profile_tables(std::string_view json, const std::string& file);

}  // namespace dflop
