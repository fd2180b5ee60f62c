#include "costmodel/analytic/communication.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace dflop {
namespace {

/// A Spread says how a collective's participants are distributed over the nodes.
struct Spread {
  int participants = 0;
  int nodes = 0;
  int emptiest = 0;
  int fullest = 0;
};

Spread spread_of(const ClusterSpec& cluster, const Collective& collective, const Program& program) {
  std::map<int, int> on_node;
  for (const std::int32_t group : collective.groups) {
    on_node[cluster.node_of(program.first_device(program.groups[group]))] += collective.copies;
  }
  const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto [emptiest, fullest] = std::minmax_element(on_node.begin(), on_node.end(), fewer);
  return {collective.participants(), static_cast<int>(on_node.size()), emptiest->second, fullest->second};
}

/// Returns the bytes through each port in a reduce-scatter or all-gather over n ranks.
double half_ring_bytes(int n, double bytes) {
  return bytes * (n - 1) / n;
}

std::vector<CollectivePhase> ring(const ClusterSpec& cluster, const Spread& spread, double bytes) {
  const int n = spread.participants;
  const double moved = 2 * half_ring_bytes(n, bytes);
  if (spread.nodes == 1) return {{2 * (n - 1) * cluster.intra_node.latency, moved, 0}};
  const Seconds step = std::max(cluster.intra_node.latency, cluster.inter_node.latency);
  return {{2 * (n - 1) * step, moved, moved / spread.emptiest}};
}

std::vector<CollectivePhase> tree(const ClusterSpec& cluster, const Spread& spread, double bytes) {
  const double levels = std::ceil(std::log2(spread.nodes));
  const Seconds latency =
      2 * (spread.fullest - 1) * cluster.intra_node.latency + 2 * levels * cluster.inter_node.latency;
  const double inside = spread.fullest > 1 ? 2 * bytes : 0;
  return {{latency, inside, 2 * bytes / spread.emptiest}};
}

std::vector<CollectivePhase> hierarchical(const ClusterSpec& cluster, const Spread& spread, double bytes) {
  const int g = spread.fullest;
  const CollectivePhase inside{(g - 1) * cluster.intra_node.latency, half_ring_bytes(g, bytes), 0};
  const CollectivePhase between{2 * (spread.nodes - 1) * cluster.inter_node.latency, 0,
                                2 * half_ring_bytes(spread.nodes, bytes / spread.emptiest)};
  if (g == 1) return {between};
  return {inside, between, inside};
}

}  // namespace

bool shares_node_ring(const ClusterSpec& cluster, const Collective& collective, const Program& program) {
  return cluster.software.node_ring_bandwidth_bytes_per_s > 0 &&
         spread_of(cluster, collective, program).emptiest > 1;
}

double network_bandwidth(const ClusterSpec& cluster, const Collective& collective, const Program& program) {
  const int emptiest = spread_of(cluster, collective, program).emptiest;
  if (emptiest == 1 || cluster.software.node_ring_bandwidth_bytes_per_s == 0) {
    return cluster.inter_node.bandwidth_bytes_per_s;
  }
  const int rings = program.groups[collective.groups.front()].ranks / collective.copies;
  return cluster.software.node_ring_bandwidth_bytes_per_s / (rings * emptiest);
}

Seconds phase_time(const ClusterSpec& cluster, const CollectivePhase& phase, double network_bandwidth) {
  return phase.latency + Seconds(std::max(phase.node_bytes / cluster.intra_node.bandwidth_bytes_per_s,
                                          phase.network_bytes / network_bandwidth));
}

std::vector<CollectivePhase> all_reduce_phases(const ClusterSpec& cluster, const Collective& collective,
                                               const Program& program) {
  if (collective.participants() < 2) return {};
  const Spread spread = spread_of(cluster, collective, program);
  const auto bytes = static_cast<double>(collective.bytes.count);
  if (spread.nodes == 1) return ring(cluster, spread, bytes);
  switch (cluster.collectives) {
    case CollectiveAlgorithm::ring:
      return ring(cluster, spread, bytes);
    case CollectiveAlgorithm::tree:
      return tree(cluster, spread, bytes);
    case CollectiveAlgorithm::hierarchical:
      return hierarchical(cluster, spread, bytes);
    case CollectiveAlgorithm::fastest:
      break;
  }
  const double bandwidth = network_bandwidth(cluster, collective, program);
  const auto time = [&](const std::vector<CollectivePhase>& phases) {
    return std::accumulate(phases.begin(), phases.end(), Seconds(0),
                           [&](Seconds sum, const CollectivePhase& phase) {
                             return sum + phase_time(cluster, phase, bandwidth);
                           });
  };
  return std::min(
      {ring(cluster, spread, bytes), tree(cluster, spread, bytes), hierarchical(cluster, spread, bytes)},
      [&](const auto& a, const auto& b) { return time(a) < time(b); });
}

namespace {

/// Returns the time of a reduce-scatter or all-gather of `bytes` on each of `ranks` by a ring: half of an
/// all-reduce.
Seconds ring_half(const Link& link, int ranks, double bytes) {
  const int steps = ranks - 1;
  return steps * (link.latency + Seconds(bytes / ranks / link.bandwidth_bytes_per_s));
}

}  // namespace

Seconds copies_gather_time(const ClusterSpec& cluster, int copies, double bytes) {
  return ring_half(cluster.intra_node, copies, copies * bytes);
}

bool inside_node(const ClusterSpec& cluster, const Message& message, const Program& program) {
  const Group& a = program.groups[message.source];
  const Group& b = program.groups[message.destination];
  const int first = std::min(program.first_device(a), program.first_device(b));
  const int last = std::max(program.first_device(a) + a.ranks, program.first_device(b) + b.ranks) - 1;
  return cluster.node_of(first) == cluster.node_of(last);
}

double bytes_on_link(const Message& message, const Program& program) {
  const Group& source = program.groups[message.source];
  const Group& destination = program.groups[message.destination];
  const int links = hub_copies(message, program) > 0 ? 1 : std::min(source.ranks, destination.ranks);
  return static_cast<double>(message.port_bytes.count) / links;
}

Seconds tensor_all_reduce_time(const ClusterSpec& cluster, int tp, double bytes) {
  const int nodes = (tp + cluster.gpus_per_node - 1) / cluster.gpus_per_node;
  const int on_node = (tp + nodes - 1) / nodes;
  const Link& inside = cluster.intra_node;
  const Link& between = cluster.inter_node;
  const double inside_bytes = 2 * bytes * (on_node - 1) / on_node;
  const double network_bytes = 2 * bytes / on_node * (nodes - 1) / nodes;
  return 2 * ((on_node - 1) * inside.latency + (nodes - 1) * between.latency) +
         Seconds(std::max(inside_bytes / inside.bandwidth_bytes_per_s,
                          network_bytes / between.bandwidth_bytes_per_s));
}

Seconds message_latency(const ClusterSpec& cluster, const Message& message, const Program& program) {
  const Group& source = program.groups[message.source];
  const Group& destination = program.groups[message.destination];
  const Link& link = inside_node(cluster, message, program) ? cluster.intra_node : cluster.inter_node;
  const bool stays = stays_on_gpus(message, program);
  const Seconds latency = (stays ? Seconds(0) : link.latency) + cluster.software.message_overhead;
  const bool gathers =
      !program.stages[destination.stage].sequence_parallel && hub_copies(message, program) == 0;
  if (!gathers) return latency;
  const int parts = std::min({source.ranks, destination.ranks, cluster.gpus_per_node});
  return latency + ring_half(cluster.intra_node, parts, static_cast<double>(message.port_bytes.count));
}

Seconds copy_time(const ClusterSpec& cluster, const Message& message, const Program& program) {
  const int ranks = hub_copies(message, program) > 0 ? 1 : program.groups[message.source].ranks;
  const double bytes = static_cast<double>(message.bytes.count) / ranks;
  return Seconds(2 * bytes / (cluster.gpu.memory_bandwidth_bytes_per_s * cluster.software.memory_efficiency));
}

Seconds message_time(const ClusterSpec& cluster, const Message& message, const Program& program) {
  if (stays_on_gpus(message, program))
    return message_latency(cluster, message, program) + copy_time(cluster, message, program);
  const Link& link = inside_node(cluster, message, program) ? cluster.intra_node : cluster.inter_node;
  return message_latency(cluster, message, program) +
         Seconds(bytes_on_link(message, program) / link.bandwidth_bytes_per_s);
}

Seconds all_reduce_time(const ClusterSpec& cluster, const Collective& collective, const Program& program) {
  if (collective.participants() < 2) return Seconds(0);
  const double bandwidth = network_bandwidth(cluster, collective, program);
  Seconds sum{0};
  for (const CollectivePhase& phase : all_reduce_phases(cluster, collective, program)) {
    sum += phase_time(cluster, phase, bandwidth);
  }
  return sum;
}

ReductionTimes reduction_times(const ClusterSpec& cluster, const Collective& collective,
                               const Program& program) {
  ReductionTimes times;
  if (collective.participants() < 2) return times;
  const double bandwidth = network_bandwidth(cluster, collective, program);
  const bool shared = shares_node_ring(cluster, collective, program);
  for (const CollectivePhase& phase : all_reduce_phases(cluster, collective, program)) {
    times.latency += phase.latency;
    const Seconds inside(phase.node_bytes / cluster.intra_node.bandwidth_bytes_per_s);
    const Seconds between(phase.network_bytes / bandwidth);
    Seconds& slower = inside >= between ? times.intra_node : shared ? times.node_ring : times.inter_node;
    slower += std::max(inside, between);
  }
  return times;
}

}  // namespace dflop
