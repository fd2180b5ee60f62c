#include "costmodel/communication.hpp"

#include <algorithm>

#include "costmodel/collectives.hpp"

namespace dflop {
namespace {

/// Reduce-scatter or all-gather of `bytes` on each of `ranks` by a ring: half of an all-reduce.
Seconds ring_half(const Link& link, int ranks, double bytes) {
  const int steps = ranks - 1;
  return steps * (link.latency + Seconds(bytes / ranks / link.bandwidth_bytes_per_s));
}

int last_rank(const Group& group) {
  return group.first_rank + group.ranks - 1;
}

bool on_one_node(const ClusterSpec& cluster, const Group& a, const Group& b) {
  const int first = std::min(a.first_rank, b.first_rank);
  const int last = std::max(last_rank(a), last_rank(b));
  return cluster.node_of(first) == cluster.node_of(last);
}

}  // namespace

Seconds ring_all_reduce(const Link& link, int ranks, double bytes) {
  return 2 * ring_half(link, ranks, bytes);
}

Seconds message_time(const ClusterSpec& cluster, const Message& message, const Program& program) {
  const Group& source = program.groups[message.source];
  const Group& destination = program.groups[message.destination];
  const Link& link = on_one_node(cluster, source, destination) ? cluster.intra_node : cluster.inter_node;
  const int pairs =
      program.stages[source.stage].sequence_parallel ? std::min(source.ranks, destination.ranks) : 1;
  const double bytes = static_cast<double>(message.port_bytes.count) / pairs;
  return link.latency + Seconds(bytes / link.bandwidth_bytes_per_s);
}

Seconds all_reduce_time(const ClusterSpec& cluster, const Collective& collective, const Program& program) {
  const double bandwidth = network_bandwidth(cluster, collective, program);
  Seconds sum{0};
  for (const CollectivePhase& phase : all_reduce_phases(cluster, collective, program)) {
    sum += phase_time(cluster, phase, bandwidth);
  }
  return sum;
}

}  // namespace dflop
