// A ClusterSpec describes GPUs, nodes and the links between them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/names.hpp"
#include "core/units.hpp"

namespace dflop {

/// A Link describes one tier of links. A message of b bytes takes latency + b / bandwidth.
struct Link {
  Seconds latency{0};
  double bandwidth_bytes_per_s = 0;  ///< of one GPU in one direction; as achieved, not as advertised

  bool operator==(const Link&) const = default;
};

/// A GpuSpec describes the hardware of one GPU type.
struct GpuSpec {
  std::string name;
  double peak_flop_per_s = 0;  ///< dense bf16
  double memory_bandwidth_bytes_per_s = 0;
  Bytes memory;             ///< on the card
  Bytes reserved_memory;    ///< context, communication buffers, fragmentation: unavailable to plans
  int multiprocessors = 0;  ///< 0: unknown; then every share is granted as requested
  int share_quantum = 8;    ///< a share is a multiple of this many multiprocessors
  /// A kernel reaches the GPU's full memory bandwidth at this share of the multiprocessors. Below it,
  /// bandwidth is proportional to the share. Matrix products of decoding saturate an H100's memory near 0.35
  /// (BulletServe, issue 1).
  double saturating_share = 0.35;

  Bytes usable_memory() const { return memory - reserved_memory; }
  bool operator==(const GpuSpec&) const = default;
};

/// A SoftwareSpec describes how well the training software uses the hardware. Efficiencies are fractions of
/// the peak in the limit of large shapes; costmodel/analytic/roofline.hpp says how they fall for small ones.
struct SoftwareSpec {
  std::string name;
  double gemm_efficiency = 0;
  double gemm_half_tokens = 0;  ///< tokens at which a matrix product reaches half of gemm_efficiency
  /// A product reaches half of gemm_efficiency at this width on a rank: the smaller of inputs and outputs.
  double gemm_half_width = 0;
  double attention_forward_efficiency = 0;
  double attention_backward_efficiency = 0;
  double attention_half_tokens =
      0;                         ///< mean sequence length at which attention reaches half of its efficiency
  double memory_efficiency = 0;  ///< fraction of the memory bandwidth that streaming kernels reach
  Seconds kernel_overhead{0};    ///< fixed time of one layer's small kernels on the GPU, per pass
  /// The host takes this long to launch the kernels of one layer's forward pass. A pass takes at least this
  /// long, even if its kernels are short.
  Seconds layer_launch{0};
  /// A message between pipeline stages takes this long in addition to the link's latency: the host waits for
  /// the message, and then the GPU waits for the host.
  Seconds message_overhead{0};
  /// All gradient rings with several ranks in a node share this outgoing bandwidth of the node. 0: the rings
  /// use every network card, so the bandwidth is gpus_per_node times the bandwidth of inter_node.
  double node_ring_bandwidth_bytes_per_s = 0;
  /// This share of tensor-parallel communication overlaps with matrix products.
  double tensor_overlap = 0;
  /// A kernel moves this many times the bytes while the other module of a shared plan runs on the same GPU,
  /// because both use its cache.
  double shared_cache_factor = 1;

  bool operator==(const SoftwareSpec&) const = default;
};

/// GrantedShares are the fractions of a GPU's multiprocessors that the two modules of a shared plan get. A
/// module that would get less than a quantum has 0.
struct GrantedShares {
  double encoder;
  double llm;
};

/// Returns the shares that a GPU grants when the encoder asks for `share` of it. The encoder gets the nearest
/// number of quanta and the LLM gets the remaining quanta. Multiprocessors left over after whole quanta go to
/// neither, as in a live run.
GrantedShares granted_shares(const GpuSpec& gpu, double share);

/// Returns the GPU of a rank. Ranks r and r + `shared_gpus` share GPU r. If `shared_gpus` is 0, each rank has
/// its own GPU.
constexpr int device_of(int rank, int shared_gpus) {
  return shared_gpus > 0 ? rank % shared_gpus : rank;
}

/// A CollectiveAlgorithm says how gradients are reduced across several nodes;
/// costmodel/analytic/communication.hpp has the formulas.
enum class CollectiveAlgorithm : std::uint8_t { hierarchical, ring, tree, fastest };

template <>
inline constexpr NameTable<CollectiveAlgorithm, 4> kNames<CollectiveAlgorithm> = {
    {{CollectiveAlgorithm::hierarchical, "hierarchical"},
     {CollectiveAlgorithm::ring, "ring"},
     {CollectiveAlgorithm::tree, "tree"},
     {CollectiveAlgorithm::fastest, "fastest"}}};

/// LeafSwitches describe the switches between nodes. Without contention they add no time to
/// ClusterSpec::inter_node.
struct LeafSwitches {
  int nodes = 0;                ///< nodes under each leaf switch; 0: one switch for all nodes
  double oversubscription = 1;  ///< bandwidth of a switch's network cards / bandwidth of its uplinks

  bool operator==(const LeafSwitches&) const = default;
};

/// A NodeGroup has consecutive nodes of a mixed cluster whose GPUs all have the same type.
struct NodeGroup {
  int nodes = 0;
  GpuSpec gpu;
  SoftwareSpec software = {};  ///< only for kernel times; messages and reductions use the cluster's

  bool operator==(const NodeGroup&) const = default;
};

struct ClusterSpec {
  std::string name;  ///< as given: "a100-80g:4", "a100-80g:3+h100:1", or a path with ":4"
  int nodes = 1;
  int gpus_per_node = 0;
  GpuSpec gpu;  ///< in a mixed cluster, the type with the least usable memory: what fits there fits
                ///< everywhere
  Link intra_node;
  Link inter_node;  ///< per GPU
  LeafSwitches leaf = {};
  CollectiveAlgorithm collectives = CollectiveAlgorithm::hierarchical;
  SoftwareSpec software = {};               ///< in a mixed cluster, kernel times are the first group's
  std::vector<NodeGroup> node_groups = {};  ///< only in a mixed cluster; ranks are placed in this order
  bool placeholder = false;  ///< speeds are round figures that should be replaced by measured ones

  int gpus() const { return nodes * gpus_per_node; }
  int node_of(int device) const { return device / gpus_per_node; }

  bool is_mixed() const { return !node_groups.empty(); }
  /// Returns the type of a GPU. @pre device < gpus()
  const GpuSpec& gpu_of(int device) const;
  /// Returns the sum of peak_flop_per_s over all GPUs.
  double peak_flop_per_s() const;
  /// Returns this cluster with the GPU and kernel times of `group` on all nodes. Its links stay the same.
  ClusterSpec with_gpus_of(const NodeGroup& group) const;

  bool operator==(const ClusterSpec&) const = default;
};

/// Replaces a cluster's nodes by groups of nodes, which may have different GPU types. Messages and reductions
/// still follow the cluster's own software. If all groups have the same GPU and software, the result is a
/// cluster of one type.
/// @pre there is at least one group, and each has at least one node
void set_node_groups(ClusterSpec& cluster, std::vector<NodeGroup> groups);

}  // namespace dflop
