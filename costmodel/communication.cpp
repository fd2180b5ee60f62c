#include "costmodel/communication.hpp"

#include <algorithm>
#include <map>

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
  if (collective.groups.size() < 2) return Seconds(0);
  std::map<int, int> on_node;
  for (const std::int32_t group : collective.groups)
    ++on_node[cluster.node_of(program.groups[group].first_rank)];
  const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto [emptiest, fullest] = std::minmax_element(on_node.begin(), on_node.end(), fewer);
  const double bytes = static_cast<double>(collective.bytes.count);
  return 2 * ring_half(cluster.intra_node, fullest->second, bytes) +
         ring_all_reduce(cluster.inter_node, static_cast<int>(on_node.size()), bytes / emptiest->second);
}

}  // namespace dflop
