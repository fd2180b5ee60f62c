#include "sim/network/network.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "costmodel/analytic/communication.hpp"

namespace dflop {
namespace {

enum Port { node_out, node_in, card_out, card_in, kPorts };

/// A NetworkBuilder makes the links of a cluster and the routes of a program over them.
class NetworkBuilder {
 public:
  NetworkBuilder(const Program& program, const ClusterSpec& cluster, const std::vector<double>& factor)
      : program_(program), cluster_(cluster) {
    add_links(factor);
  }

  Network build() {
    network_.first_phase.push_back(0);
    network_.first_phase.reserve(program_.messages.size() + program_.collectives.size() + 1);
    network_.phases.reserve(program_.messages.size());
    for (const Message& message : program_.messages) {
      add_message(message);
      network_.first_phase.push_back(network_.phases.size());
    }
    for (const Collective& collective : program_.collectives) {
      for (const CollectivePhase& phase : all_reduce_phases(cluster_, collective, program_)) {
        add_phase(collective, phase);
      }
      network_.first_phase.push_back(network_.phases.size());
    }
    return std::move(network_);
  }

 private:
  void add_links(const std::vector<double>& factor) {
    if (shares_gpus()) {
      add_ports_of_gpus(factor);
    } else {
      for (std::size_t g = 0; g < program_.groups.size(); ++g)
        add_ports(program_.groups[g].ranks * (factor.empty() ? 1.0 : factor[g]));
    }
    if (cluster_.leaf.nodes == 0) return;
    first_leaf_link_ = static_cast<std::int32_t>(network_.link_bytes_per_s.size());
    const int leaves = (cluster_.nodes + cluster_.leaf.nodes - 1) / cluster_.leaf.nodes;
    const double capacity = cluster_.leaf.nodes * cluster_.gpus_per_node *
                            cluster_.inter_node.bandwidth_bytes_per_s / cluster_.leaf.oversubscription;
    network_.link_bytes_per_s.insert(network_.link_bytes_per_s.end(), 2 * std::size_t(leaves), capacity);
  }

  bool shares_gpus() const { return program_.shared_gpus > 0; }

  /// Adds the ports of this many GPUs.
  void add_ports(double gpus) {
    for (const Link& link : {cluster_.intra_node, cluster_.inter_node}) {
      network_.link_bytes_per_s.insert(network_.link_bytes_per_s.end(), 2, gpus * link.bandwidth_bytes_per_s);
    }
  }

  /// Adds ports for each GPU; the groups on it share them.
  void add_ports_of_gpus(const std::vector<double>& factor) {
    if (factor.empty()) return add_ports_of_gpus(std::vector<double>(program_.groups.size(), 1.0));
    for (const double gpu : gpu_factors(program_, factor)) add_ports(gpu);
  }

  /// Adds the use of a group's ports of one kind: `weight` times the combined rate of all of them.
  void add_use(std::vector<LinkUse>& uses, std::int32_t group, Port port, double weight) const {
    if (!shares_gpus()) return uses.push_back({group * kPorts + port, weight});
    const Group& of = program_.groups[group];
    const int first = program_.first_device(of);
    for (int d = first; d < first + of.ranks; ++d) uses.push_back({d * kPorts + port, weight / of.ranks});
  }

  int node_of(std::int32_t group) const {
    return cluster_.node_of(program_.first_device(program_.groups[group]));
  }
  int leaf_of(std::int32_t group) const { return node_of(group) / cluster_.leaf.nodes; }
  std::int32_t leaf_up(int leaf) const { return first_leaf_link_ + 2 * leaf; }
  std::int32_t leaf_down(int leaf) const { return first_leaf_link_ + 2 * leaf + 1; }

  void add_message(const Message& message) {
    if (stays_on_gpus(message, program_)) return add_copy(message);
    const int copies = hub_copies(message, program_);
    const bool inside = inside_node(cluster_, message, program_);
    const auto [place, is_new] = routes_.try_emplace({message.source, message.destination}, 0);
    if (is_new) place->second = message_route(message, inside);
    network_.phases.push_back({place->second, to_nanoseconds(message_latency(cluster_, message, program_)),
                               static_cast<double>(message.bytes.count) * std::max(1, copies)});
  }

  /// Adds a message that stays on its GPUs: it takes time but uses no link.
  void add_copy(const Message& message) {
    if (no_links_ < 0) no_links_ = add_route({}, kUnlimited);
    const Seconds time =
        message_latency(cluster_, message, program_) + copy_time(cluster_, message, program_);
    network_.phases.push_back({no_links_, to_nanoseconds(time), 0});
  }

  /// Returns the route of a message over the links of all ranks of its groups. To or from a hub, one rank
  /// moves the whole message: it uses one link of its group with a correspondingly higher weight.
  std::int32_t message_route(const Message& message, bool inside) {
    const int out_ranks = program_.groups[message.source].ranks;
    const int in_ranks = program_.groups[message.destination].ranks;
    const int copies = hub_copies(message, program_);
    const bool from_hub = message.source == program_.hub;
    const double out = copies > 0 ? out_ranks : 1;
    const double in = copies > 0 && !from_hub ? in_ranks : 1;
    const int pairs = copies > 0 ? 1 : std::min(out_ranks, in_ranks);
    std::vector<LinkUse> uses;
    add_use(uses, message.source, inside ? node_out : card_out, out);
    add_use(uses, message.destination, inside ? node_in : card_in, in);
    const bool over_leaves =
        !inside && cluster_.leaf.nodes > 0 && leaf_of(message.source) != leaf_of(message.destination);
    if (over_leaves) {
      uses.push_back({leaf_up(leaf_of(message.source)), 1});
      uses.push_back({leaf_down(leaf_of(message.destination)), 1});
    }
    const Link& link = inside ? cluster_.intra_node : cluster_.inter_node;
    return add_route(uses, pairs * link.bandwidth_bytes_per_s);
  }

  /// Adds a phase of a collective. It takes its bytes and rate from one rank, over the kind of links (in the
  /// node or between nodes) that carries more bytes. The other kind is used in proportion.
  void add_phase(const Collective& collective, const CollectivePhase& phase) {
    const double bandwidth = network_bandwidth(cluster_, collective, program_);
    const double bytes = std::max(phase.node_bytes, phase.network_bytes);
    const double node_weight = bytes > 0 ? phase.node_bytes / bytes : 0;
    const double card_weight = bytes > 0 ? phase.network_bytes / bytes : 0;
    std::vector<LinkUse> uses;
    double most = kUnlimited;
    if (node_weight > 0) most = cluster_.intra_node.bandwidth_bytes_per_s / node_weight;
    if (card_weight > 0) most = std::min(most, bandwidth / card_weight);
    for (const std::int32_t group : collective.groups) {
      const double ranks = program_.groups[group].ranks;
      for (const Port p : {node_out, node_in}) {
        if (node_weight > 0) add_use(uses, group, p, ranks * node_weight);
      }
      for (const Port p : {card_out, card_in}) {
        if (card_weight > 0) add_use(uses, group, p, ranks * card_weight);
      }
    }
    if (card_weight > 0 && cluster_.leaf.nodes > 0) add_leaf_uses(collective, card_weight, uses);
    network_.phases.push_back({add_route(uses, most), to_nanoseconds(phase.latency), bytes});
  }

  /// Adds the links of leaf switches. A ring crosses into and out of every leaf once, and there are as many
  /// rings as a node has participating ranks.
  void add_leaf_uses(const Collective& collective, double card_weight, std::vector<LinkUse>& uses) const {
    std::map<int, double> ranks_on_node;
    std::map<int, double> rings_of_leaf;
    for (const std::int32_t group : collective.groups) {
      ranks_on_node[node_of(group)] += program_.groups[group].ranks;
    }
    for (const auto& [node, ranks] : ranks_on_node) {
      double& rings = rings_of_leaf[node / cluster_.leaf.nodes];
      rings = std::max(rings, ranks);
    }
    if (rings_of_leaf.size() < 2) return;
    for (const auto& [leaf, rings] : rings_of_leaf) {
      uses.push_back({leaf_up(leaf), rings * card_weight});
      uses.push_back({leaf_down(leaf), rings * card_weight});
    }
  }

  std::int32_t add_route(const std::vector<LinkUse>& uses, double most) {
    for (const LinkUse& use : uses) most = std::min(most, network_.link_bytes_per_s[use.link] / use.weight);
    const std::size_t begin = network_.uses.size();
    network_.uses.insert(network_.uses.end(), uses.begin(), uses.end());
    network_.routes.push_back({begin, network_.uses.size(), most});
    return static_cast<std::int32_t>(network_.routes.size() - 1);
  }

  static constexpr double kUnlimited = 1e18;  // bytes per second, for transfers that move nothing

  const Program& program_;
  const ClusterSpec& cluster_;
  Network network_;
  std::int32_t first_leaf_link_ = 0;
  std::int32_t no_links_ = -1;                                            ///< the route of copies
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> routes_;  ///< of messages, by their ends
};

}  // namespace

std::vector<double> gpu_factors(const Program& program, const std::vector<double>& factor) {
  std::vector<double> of_gpu(program.shared_gpus, std::numeric_limits<double>::infinity());
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    const int first = program.first_device(program.groups[g]);
    for (int d = first; d < first + program.groups[g].ranks; ++d) of_gpu[d] = std::min(of_gpu[d], factor[g]);
  }
  return of_gpu;
}

Network cluster_network(const Program& program, const ClusterSpec& cluster,
                        const std::vector<double>& bandwidth_factor) {
  return NetworkBuilder(program, cluster, bandwidth_factor).build();
}

Network shared_link(const Program& program, Nanoseconds latency, double bytes_per_s,
                    double message_bytes_per_s, const std::vector<double>& bandwidth_factor) {
  Network network;
  network.link_bytes_per_s = {bytes_per_s};
  network.uses = {{0, 1.0}};
  std::vector<double> factors = {1};  // per route
  network.first_phase = {0};
  network.phases.reserve(program.messages.size());
  for (const Message& message : program.messages) {
    double factor = 1;
    if (!bandwidth_factor.empty()) {
      factor = std::min(bandwidth_factor[message.source], bandwidth_factor[message.destination]);
    }
    auto route = std::find(factors.begin(), factors.end(), factor);
    if (route == factors.end()) route = factors.insert(factors.end(), factor);
    network.phases.push_back({static_cast<std::int32_t>(route - factors.begin()), latency,
                              static_cast<double>(message.bytes.count)});
    network.first_phase.push_back(network.phases.size());
  }
  for (const double factor : factors) {
    network.routes.push_back({0, 1, std::min(bytes_per_s, message_bytes_per_s * factor)});
  }
  network.first_phase.resize(program.messages.size() + program.collectives.size() + 1, network.phases.size());
  return network;
}

}  // namespace dflop
