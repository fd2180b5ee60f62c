// A ClusterSpec describes GPUs, nodes and the links between them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/names.hpp"
#include "core/units.hpp"

namespace dflop {

/// A Link is one tier of links, on which a message of b bytes takes latency + b / bandwidth.
struct Link {
  Seconds latency{0};
  double bandwidth_bytes_per_s = 0;  ///< one direction, one GPU, as achieved and not as printed on the box

  bool operator==(const Link&) const = default;
};

/// A GpuSpec describes one GPU type, as it is sold.
struct GpuSpec {
  std::string name;
  double peak_flop_per_s = 0;  ///< dense bf16
  double memory_bandwidth_bytes_per_s = 0;
  Bytes memory;             ///< on the card
  Bytes reserved_memory;    ///< context, communication buffers, fragmentation: not ours to plan with
  int multiprocessors = 0;  ///< 0: unknown, and of any share as much is granted as is asked for
  int share_quantum = 8;    ///< a share is a multiple of so many multiprocessors
  /// A kernel on this part of the multiprocessors moves as many bytes a second as on all of them, on less in
  /// proportion. Products of decoding saturate an H100's memory near 0.35 (BulletServe, issue 1).
  double saturating_share = 0.35;

  Bytes usable_memory() const { return memory - reserved_memory; }
  bool operator==(const GpuSpec&) const = default;
};

/// A SoftwareSpec is what the training software makes of the hardware. Efficiencies are fractions of the peak
/// in the limit of large shapes; costmodel/analytic/roofline.hpp says how they fall for small ones.
struct SoftwareSpec {
  std::string name;
  double gemm_efficiency = 0;
  double gemm_half_tokens = 0;  ///< tokens at which a matrix product reaches half of gemm_efficiency
  double gemm_half_width = 0;   ///< the same for the narrower of a product's per-rank widths
  double attention_forward_efficiency = 0;
  double attention_backward_efficiency = 0;
  double attention_half_tokens =
      0;                         ///< mean sequence length at which attention reaches half of its efficiency
  double memory_efficiency = 0;  ///< fraction of the memory bandwidth that streaming kernels reach
  Seconds kernel_overhead{0};    ///< fixed time of one layer's small kernels on the GPU, per pass
  /// The host takes this long to launch the kernels of one layer's forward pass. A pass takes no less,
  /// however small its kernels.
  Seconds layer_launch{0};
  /// A message between pipeline stages takes this long beside the link's latency: the host waits for it, and
  /// the GPU then waits for the host.
  Seconds message_overhead{0};
  /// All gradient rings with several ranks in a node together send this much out of it; 0 where they use
  /// every network card, that is gpus_per_node times the bandwidth of inter_node.
  double node_ring_bandwidth_bytes_per_s = 0;
  /// This share of tensor-parallel communication is hidden under the matrix products beside it.
  double tensor_overlap = 0;
  /// A kernel moves so many times the bytes where the other module of a shared plan is on the same GPU, as
  /// both use its cache.
  double shared_cache_factor = 1;

  bool operator==(const SoftwareSpec&) const = default;
};

/// GrantedShares are the parts of a GPU's multiprocessors that the modules of a shared plan get. 0 for one
/// that would have less than a quantum.
struct GrantedShares {
  double encoder;
  double llm;
};

/// Returns what a GPU grants to an encoder that asks for `share` of it, the nearest number of quanta, and to
/// the LLM, the quanta that remain. Multiprocessors that make no whole quantum are nobody's, as in a live
/// run.
GrantedShares granted_shares(const GpuSpec& gpu, double share);

/// Returns the GPU of a rank, where ranks from `shared_gpus` on are on the GPUs of those before; 0: each rank
/// has one.
constexpr int device_of(int rank, int shared_gpus) {
  return shared_gpus > 0 ? rank % shared_gpus : rank;
}

/// A CollectiveAlgorithm says how gradient reductions over several nodes go;
/// costmodel/analytic/communication.hpp has the formulas.
enum class CollectiveAlgorithm : std::uint8_t { hierarchical, ring, tree, fastest };

template <>
inline constexpr NameTable<CollectiveAlgorithm, 4> kNames<CollectiveAlgorithm> = {
    {{CollectiveAlgorithm::hierarchical, "hierarchical"},
     {CollectiveAlgorithm::ring, "ring"},
     {CollectiveAlgorithm::tree, "tree"},
     {CollectiveAlgorithm::fastest, "fastest"}}};

/// LeafSwitches are the switches between nodes. Without contention they add no time to that of inter_node.
struct LeafSwitches {
  int nodes = 0;                ///< under one of them; 0: one switch for all nodes
  double oversubscription = 1;  ///< bandwidth of the cards below over that of the links above

  bool operator==(const LeafSwitches&) const = default;
};

/// A NodeGroup is nodes of a mixed cluster that follow each other and have GPUs of one type.
struct NodeGroup {
  int nodes = 0;
  GpuSpec gpu;
  SoftwareSpec software = {};  ///< its kernels; messages and reductions are the cluster's

  bool operator==(const NodeGroup&) const = default;
};

struct ClusterSpec {
  std::string name;  ///< as given: "a100-80g:4", "a100-80g:3+h100:1", or a path with ":4"
  int nodes = 1;
  int gpus_per_node = 0;
  GpuSpec gpu;  ///< of a mixed cluster the type with the least usable memory: what fits there fits everywhere
  Link intra_node;
  Link inter_node;  ///< per GPU
  LeafSwitches leaf = {};
  CollectiveAlgorithm collectives = CollectiveAlgorithm::hierarchical;
  SoftwareSpec software = {};               ///< of a mixed cluster the kernels of the first nodes
  std::vector<NodeGroup> node_groups = {};  ///< of a mixed cluster, whose ranks are laid in this order
  bool placeholder = false;  ///< speeds are round figures, in whose place what was measured has to stand

  int gpus() const { return nodes * gpus_per_node; }
  int node_of(int device) const { return device / gpus_per_node; }

  bool is_mixed() const { return !node_groups.empty(); }
  /// Returns the type of a GPU. @pre device < gpus()
  const GpuSpec& gpu_of(int device) const;
  /// Returns the sum over all GPUs.
  double peak_flop_per_s() const;
  /// Returns a cluster of one type: the GPU and kernels of one group on all nodes, the links as they are.
  ClusterSpec with_gpus_of(const NodeGroup& group) const;

  bool operator==(const ClusterSpec&) const = default;
};

/// Gives a cluster nodes of several types, in place of its own; messages and reductions stay as its software
/// has them. Groups that are all alike make it a cluster of one type. @pre there is a group, and each has a
/// node
void set_node_groups(ClusterSpec& cluster, std::vector<NodeGroup> groups);

}  // namespace dflop
