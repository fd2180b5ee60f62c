#include "sim/network.hpp"

namespace dflop {

Network shared_link(const Program& program, Nanoseconds latency, double bytes_per_s) {
  Network network;
  network.link_bytes_per_s = {bytes_per_s};
  network.uses = {{0, 1.0}};
  network.routes = {{0, 1, bytes_per_s}};
  network.first_phase = {0};
  network.phases.reserve(program.messages.size());
  for (const Message& message : program.messages) {
    network.phases.push_back({0, latency, static_cast<double>(message.bytes.count)});
    network.first_phase.push_back(network.phases.size());
  }
  network.first_phase.resize(program.messages.size() + program.collectives.size() + 1, network.phases.size());
  return network;
}

}  // namespace dflop
