#include "costmodel/analytic/communication.hpp"

#include <algorithm>

#include "costmodel/analytic/collectives.hpp"

namespace dflop {
namespace {

/// Returns the time of a reduce-scatter or all-gather of `bytes` on each of `ranks` by a ring: half of an
/// all-reduce.
Seconds ring_half(const Link& link, int ranks, double bytes) {
  const int steps = ranks - 1;
  return steps * (link.latency + Seconds(bytes / ranks / link.bandwidth_bytes_per_s));
}

int last_rank(const Group& group) {
  return group.first_rank + group.ranks - 1;
}

}  // namespace

bool inside_node(const ClusterSpec& cluster, const Message& message, const Program& program) {
  const Group& a = program.groups[message.source];
  const Group& b = program.groups[message.destination];
  const int first = std::min(a.first_rank, b.first_rank);
  const int last = std::max(last_rank(a), last_rank(b));
  return cluster.node_of(first) == cluster.node_of(last);
}

double bytes_on_link(const Message& message, const Program& program) {
  const Group& source = program.groups[message.source];
  const Group& destination = program.groups[message.destination];
  return static_cast<double>(message.port_bytes.count) / std::min(source.ranks, destination.ranks);
}

Seconds ring_all_reduce(const Link& link, int ranks, double bytes) {
  return 2 * ring_half(link, ranks, bytes);
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
  const Seconds latency = link.latency + cluster.message_overhead;
  if (program.stages[destination.stage].sequence_parallel) return latency;
  const int parts = std::min({source.ranks, destination.ranks, cluster.gpus_per_node});
  return latency + ring_half(cluster.intra_node, parts, static_cast<double>(message.port_bytes.count));
}

Seconds message_time(const ClusterSpec& cluster, const Message& message, const Program& program) {
  const Link& link = inside_node(cluster, message, program) ? cluster.intra_node : cluster.inter_node;
  return message_latency(cluster, message, program) +
         Seconds(bytes_on_link(message, program) / link.bandwidth_bytes_per_s);
}

Seconds all_reduce_time(const ClusterSpec& cluster, const Collective& collective, const Program& program) {
  if (collective.groups.size() < 2) return Seconds(0);
  const double bandwidth = network_bandwidth(cluster, collective, program);
  Seconds sum{0};
  for (const CollectivePhase& phase : all_reduce_phases(cluster, collective, program)) {
    sum += phase_time(cluster, phase, bandwidth);
  }
  return sum;
}

}  // namespace dflop
