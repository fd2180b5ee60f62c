#include "sim/network/network.hpp"

#include <algorithm>

namespace dflop {

Network shared_link(const Program& program, Nanoseconds latency, double bytes_per_s,
                    double message_bytes_per_s, const std::vector<double>& bandwidth_factor) {
  Network network;
  network.link_bytes_per_s = {bytes_per_s};
  network.uses = {{0, 1.0}};
  std::vector<double> factors = {1};  // of the routes
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
