// This file finds models and clusters by name, among the presets compiled in from experiments/presets/ or in
// the user's files.
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

/// Returns the names of the presets of one kind.
std::vector<std::string> preset_names(std::string_view kind);

/// Finds a model: `name` is a preset, the path of a file (anything with a '/' or ending in ".json"), or a
/// Hugging Face model folder with a config.json.
/// @throws Error (input) for an unknown name, listing the known ones, or a file that is not a model.
ModelSpec find_model(const std::string& name);

/// Returns whether a model's name is a folder.
bool is_model_folder(const std::string& name);

/// Finds a cluster: `name` is "a100-80g:4" (4 nodes), "a100-80g" (1 node) or a file's path, with or without a
/// number of nodes. Names may be joined, as in "a100-80g:15+h100:1": the cluster then has nodes of several
/// GPU types, and the links of the first name.
/// @throws Error (input) for an unknown name or a file that is not a cluster, for a node count outside 1 to
/// 4096 or one that contradicts the key "nodes" of a file, and for nodes of different sizes
ClusterSpec find_cluster(const std::string& name);

/// Finds a cluster like find_cluster(). @throws Error (input) also for a cluster with several GPU types
ClusterSpec find_uniform_cluster(const std::string& name);

/// A ClusterFile is a cluster of one GPU type, with the text of its file.
struct ClusterFile {
  ClusterSpec cluster;
  ClusterNotes notes;
  std::string json;
};

/// Finds a single preset or file by name. Reads a file only once, because it may be a pipe.
/// @throws Error (input) for joined names, and for a file with the key "nodes"; what find_cluster() throws
ClusterFile find_cluster_file(const std::string& name);

/// Returns whether a cluster's name fixes the number of nodes without a number at its end: it joins several
/// names, or is a file with the key "nodes".
bool says_nodes(const std::string& cluster);

/// Returns the cluster's name with this number of nodes; the unchanged name if says_nodes().
std::string with_nodes(const std::string& cluster, std::int64_t nodes);

/// NamedNotes are the notes of a preset or cluster file, with its name.
struct NamedNotes {
  std::string name;  ///< without the number of nodes
  ClusterNotes notes;
};

/// Returns the notes of each preset or file that a cluster's name joins. The notes of a file that can be read
/// only once, such as a pipe, are unknown. @throws what find_cluster() throws
std::vector<NamedNotes> find_cluster_notes(const std::string& name);

/// Returns the text that find_cluster() reads for a name, including the numbers of nodes.
std::string cluster_text(const std::string& name);

/// Return a hash of the text that find_model() or find_cluster() reads for a name; for clusters, including
/// the number of nodes. The hash is empty for a file that can be read only once, such as a pipe.
std::string model_hash(const std::string& name);
std::string cluster_hash(const std::string& name);

}  // namespace dflop
