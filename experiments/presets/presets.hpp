// Models and clusters are found by name (compiled in from experiments/presets/) or in the user's file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster.hpp"
#include "core/model.hpp"
#include "traces/files/cluster_notes.hpp"

namespace dflop {

struct Preset {
  std::string_view kind;  ///< "models" or "clusters"
  std::string_view name;
  std::string_view json;
};

/// Returns all presets, ordered by kind and name.
const std::vector<Preset>& presets();

/// Returns the names of one kind.
std::vector<std::string> preset_names(std::string_view kind);

/// Finds a model: `name` is a preset, or the path of a file (anything with a '/' or ending in ".json"), or of
/// a folder of transformers with a config.json.
/// @throws Error (input) for an unknown name, listing the known ones, or a file that is not a model.
ModelSpec find_model(const std::string& name);

/// Returns whether a model's name is that of a folder.
bool is_model_folder(const std::string& name);

/// Finds a cluster: `name` is "a100-80g:4" (4 nodes), "a100-80g" (1 node), or a file's path with the same
/// suffix, or such joined as in "a100-80g:15+h100:1": nodes of several GPU types on the first's links.
/// @throws Error (input) as find_model, and for a node count outside 1 to 4096 or other than that of a file
/// with several "nodes", and for nodes of several sizes.
ClusterSpec find_cluster(const std::string& name);

/// Finds a cluster likewise. @throws Error (input) also for one with GPUs of several types
ClusterSpec find_uniform_cluster(const std::string& name);

/// A ClusterFile is a cluster of one GPU type with the text of its file.
struct ClusterFile {
  ClusterSpec cluster;
  ClusterNotes notes;
  std::string json;
};

/// Finds the one preset or file of a name, which is read once, as it may be a pipe.
/// @throws Error (input) as find_cluster, for joined ones, and for a file with "nodes"
ClusterFile find_cluster_file(const std::string& name);

/// Tells whether a cluster that is named without a number of nodes at its end has them all the same: presets
/// that are joined, or a file with "nodes".
bool says_nodes(const std::string& cluster);

/// Returns the name of a cluster with so many nodes, unless says_nodes().
std::string with_nodes(const std::string& cluster, std::int64_t nodes);

/// NamedNotes are the notes of a preset or file.
struct NamedNotes {
  std::string name;  ///< without a number of nodes
  ClusterNotes notes;
};

/// Returns the notes of a cluster, of each of the presets or files that its name joins; of what can be read
/// but once, as a pipe, all is unknown. @throws Error (input) as find_cluster()
std::vector<NamedNotes> find_cluster_notes(const std::string& name);

/// Returns what find_cluster() reads for a name, with the numbers of nodes.
std::string cluster_text(const std::string& name);

/// Returns the hash of what find_model() or find_cluster() reads for a name, with the number of nodes; empty
/// for what can be read but once, as a pipe.
std::string model_hash(const std::string& name);
std::string cluster_hash(const std::string& name);

}  // namespace dflop
