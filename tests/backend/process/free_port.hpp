// Finds a port for the rendezvous of a test's ranks.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <stdexcept>

namespace dflop::testing {

/// Returns whether a port on the loopback interface has no listener and did not have one a moment ago.
inline bool is_free(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  const bool bound = ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  ::close(socket);
  return bound;
}

/// Returns the lowest port that the system assigns to connections.
inline int first_drawn_port() {
  constexpr int kUsual = 32'768;
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  int first = 0;
  return range >> first ? first : kUsual;
}

/// Returns a port without a listener. It stays free until rank 0 listens there: the system does not assign it
/// to connections, and other test processes start their search elsewhere.
inline int free_port() {
  constexpr int kFirst = 10'000;
  constexpr int kOfAProcess = 64;
  static std::atomic<int> next = 0;
  const int ports = std::max(kOfAProcess, first_drawn_port() - kFirst);
  for (int tried = 0; tried < ports; ++tried) {
    const int port = kFirst + static_cast<int>((std::int64_t{kOfAProcess} * ::getpid() + next++) % ports);
    if (is_free(port)) return port;
  }
  throw std::runtime_error("no port is free");
}

}  // namespace dflop::testing
