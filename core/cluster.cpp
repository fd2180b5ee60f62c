#include "core/cluster.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/quanta.hpp"

namespace dflop {

GrantedShares granted_shares(const GpuSpec& gpu, double share) {
  if (gpu.multiprocessors == 0) return {share, 1 - share};
  const int quanta = gpu.multiprocessors / gpu.share_quantum;
  const int encoder = nearest_quanta(quanta, share);
  const double quantum = 1.0 * gpu.share_quantum / gpu.multiprocessors;
  return {encoder * quantum, (quanta - encoder) * quantum};
}

const GpuSpec& ClusterSpec::gpu_of(int device) const {
  int node = node_of(device);
  for (const NodeGroup& group : node_groups) {
    if (node < group.nodes) return group.gpu;
    node -= group.nodes;
  }
  return gpu;
}

double ClusterSpec::peak_flop_per_s() const {
  if (!is_mixed()) return gpus() * gpu.peak_flop_per_s;
  double sum = 0;
  for (const NodeGroup& group : node_groups) sum += group.nodes * gpus_per_node * group.gpu.peak_flop_per_s;
  return sum;
}

ClusterSpec ClusterSpec::with_gpus_of(const NodeGroup& group) const {
  ClusterSpec alone = *this;
  alone.node_groups.clear();
  alone.gpu = group.gpu;
  alone.software = group.software;
  alone.software.message_overhead = software.message_overhead;
  alone.software.node_ring_bandwidth_bytes_per_s = software.node_ring_bandwidth_bytes_per_s;
  return alone;
}

void set_node_groups(ClusterSpec& cluster, std::vector<NodeGroup> groups) {
  const auto alike = [&](const NodeGroup& group) {
    return group.gpu == groups.front().gpu && group.software == groups.front().software;
  };
  cluster.nodes = 0;
  for (const NodeGroup& group : groups) cluster.nodes += group.nodes;
  cluster.gpu = std::ranges::min_element(groups, {}, [](const NodeGroup& group) {
                  return group.gpu.usable_memory();
                })->gpu;
  cluster.software = cluster.with_gpus_of(groups.front()).software;
  cluster.node_groups.clear();
  if (!std::ranges::all_of(groups, alike)) cluster.node_groups = std::move(groups);
}

}  // namespace dflop
