#include "backend/process/frame_socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "core/error.hpp"
#include "core/support/bytes.hpp"

namespace dflop {
namespace {

constexpr std::string_view kMagic = "DFL1";
constexpr std::size_t kHeaderBytes = 4 + 1 + 4 + 4 + 8;
constexpr std::chrono::milliseconds kRetry{50};

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

std::string place(const std::string& host, int port) {
  return host + ":" + std::to_string(port);
}

std::string system_reason() {
  return std::strerror(errno);  // NOLINT(concurrency-mt-unsafe): glibc's is safe for known errors
}

/// Returns the addresses of a host, or of this machine if `host` is null. Returns null and sets `problem` if
/// the name is unknown.
Addresses addresses_of(const char* host, int port, std::string& problem) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (host == nullptr ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int status = ::getaddrinfo(host, std::to_string(port).c_str(), &hints, &found);
  if (status != 0) problem = ::gai_strerror(status);
  return {status == 0 ? found : nullptr, &::freeaddrinfo};
}

/// Debian's /etc/hosts maps a machine's own name to a loopback address, at which other machines cannot reach
/// it.
bool is_hidden(const std::string& host, const addrinfo& address) {
  in6_addr parsed{};
  const bool is_name = ::inet_pton(AF_INET, host.c_str(), &parsed) != 1 &&
                       ::inet_pton(AF_INET6, host.c_str(), &parsed) != 1 && host != "localhost";
  if (!is_name) return false;
  if (address.ai_family == AF_INET) {
    sockaddr_in ip{};
    std::memcpy(&ip, address.ai_addr, sizeof ip);
    return ntohl(ip.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  if (address.ai_family != AF_INET6) return false;
  sockaddr_in6 ip{};
  std::memcpy(&ip, address.ai_addr, sizeof ip);
  return std::memcmp(&ip.sin6_addr, &in6addr_loopback, sizeof in6addr_loopback) == 0;
}

/// Returns the max bytes of the value of a frame of this kind; `most` for kinds that carry a rank's value.
std::uint64_t most_value_bytes(FrameKind kind, std::uint64_t most) {
  const bool carries = kind == FrameKind::put || kind == FrameKind::value || kind == FrameKind::ended;
  return carries ? most : std::min(most, kMaxWordBytes);
}

Descriptor make_socket(const addrinfo& address) {
  return Descriptor(::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol));
}

void set(const Descriptor& socket, int level, int option, int value) {
  ::setsockopt(socket.number(), level, option, &value, sizeof value);  // unsupported options are ignored
}

/// Listens at the first available address. If none is available, the result is not open and errno tells why
/// the last address failed.
Descriptor listen_on(const addrinfo* addresses) {
  int problem = 0;
  for (const addrinfo* a = addresses; a != nullptr; a = a->ai_next) {
    Descriptor socket = make_socket(*a);
    set(socket, SOL_SOCKET, SO_REUSEADDR, 1);
    ::fcntl(socket.number(), F_SETFL, O_NONBLOCK);  // a connection may disappear before it is accepted
    if (::bind(socket.number(), a->ai_addr, a->ai_addrlen) == 0 && ::listen(socket.number(), SOMAXCONN) == 0)
      return socket;
    problem = errno;
  }
  errno = problem;
  return {};
}

/// Waits until a pending connection is established. Returns 0 or the system's error.
int finish_connecting(const Descriptor& socket, Deadline deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  pollfd ready{socket.number(), POLLOUT, 0};
  const auto wait_ms = std::clamp<std::int64_t>(left.count(), 1, 10'000);
  if (::poll(&ready, 1, static_cast<int>(wait_ms)) <= 0) return ETIMEDOUT;
  int problem = 0;
  socklen_t size = sizeof problem;
  ::getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &problem, &size);
  return problem;
}

/// TCP lets a socket connect to itself if nobody listens and it has drawn the same port as its own.
bool is_own_end(const Descriptor& socket) {
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t size_here = sizeof here;
  socklen_t size_there = sizeof there;
  auto* own = reinterpret_cast<sockaddr*>(&here);
  auto* other = reinterpret_cast<sockaddr*>(&there);
  return ::getsockname(socket.number(), own, &size_here) == 0 &&
         ::getpeername(socket.number(), other, &size_there) == 0 && size_here == size_there &&
         std::memcmp(own, other, size_here) == 0;
}

Descriptor try_connect(const addrinfo& address, Deadline deadline) {
  Descriptor socket = make_socket(address);
  const int flags = ::fcntl(socket.number(), F_GETFL);
  ::fcntl(socket.number(), F_SETFL, flags | O_NONBLOCK);
  int problem = 0;
  if (::connect(socket.number(), address.ai_addr, address.ai_addrlen) != 0) {
    problem = errno == EINPROGRESS ? finish_connecting(socket, deadline) : errno;
  }
  ::fcntl(socket.number(), F_SETFL, flags);
  if (problem == 0 && is_own_end(socket)) problem = ECONNREFUSED;
  if (problem == 0) return socket;
  errno = problem;
  return {};
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

Descriptor::~Descriptor() {
  if (is_open()) ::close(number_);
}

std::string head_bytes(const Frame& frame, std::uint64_t value_bytes) {
  ByteWriter header;
  header.add(frame.kind);
  header.add(static_cast<std::uint32_t>(frame.key.size()));
  header.add(frame.readers);
  header.add(value_bytes);
  return std::string(kMagic) + header.take() + frame.key;
}

std::string to_bytes(const Frame& frame) {
  return head_bytes(frame, frame.value.size()) + frame.value;
}

std::optional<Frame> FrameBuffer::next(std::uint64_t most) {
  const std::string_view magic = std::string_view(bytes_).substr(0, kMagic.size());
  if (magic != kMagic.substr(0, magic.size()))
    throw Error(ErrorKind::input, "received bytes that are not a frame of dflop");
  if (bytes_.size() < kHeaderBytes) return std::nullopt;
  ByteReader header(std::string_view(bytes_).substr(kMagic.size()));
  Frame frame;
  const auto kind = header.get<std::uint8_t>();
  const auto key_bytes = header.get<std::uint32_t>();
  frame.readers = header.get<std::uint32_t>();
  const auto value_bytes = header.get<std::uint64_t>();
  if (kind > static_cast<std::uint8_t>(FrameKind::proof))
    throw Error(ErrorKind::input, "received a frame of unknown kind");
  frame.kind = static_cast<FrameKind>(kind);
  if (key_bytes > kMaxKeyBytes || value_bytes > most_value_bytes(frame.kind, most))
    throw Error(ErrorKind::input, "received a frame that is too large");
  if (bytes_.size() < kHeaderBytes + key_bytes + value_bytes) return std::nullopt;
  frame.key = bytes_.substr(kHeaderBytes, key_bytes);
  frame.value = bytes_.substr(kHeaderBytes + key_bytes, value_bytes);
  bytes_.erase(0, kHeaderBytes + key_bytes + value_bytes);
  return frame;
}

Descriptor listen_on(const std::string& host, int port) {
  std::string problem;
  const Addresses own = addresses_of(host.c_str(), port, problem);
  const bool hidden = own && is_hidden(host, *own);
  Descriptor socket = own && !hidden ? listen_on(own.get()) : Descriptor{};
  if (!socket.is_open() && (!own || hidden || errno == EADDRNOTAVAIL)) {
    const Addresses all = addresses_of(nullptr, port, problem);
    if (all) socket = listen_on(all.get());
  }
  if (socket.is_open()) return socket;
  throw Error(ErrorKind::internal,
              "rank 0 cannot listen at " + place(host, port) + ": " + system_reason() +
                  "; MASTER_PORT, or DFLOP_PORT before it, must be the same free port for all ranks");
}

Descriptor connect_to(const std::string& host, int port, Deadline deadline) {
  while (true) {
    std::string problem;
    const Addresses found = addresses_of(host.c_str(), port, problem);
    for (const addrinfo* a = found.get(); a != nullptr; a = a->ai_next) {
      Descriptor socket = try_connect(*a, deadline);
      if (socket.is_open()) return socket;
      problem = system_reason();
    }
    if (std::chrono::steady_clock::now() + kRetry >= deadline) {
      throw Error(found ? ErrorKind::internal : ErrorKind::usage,
                  "rank 0 cannot be reached at " + place(host, port) + ": " + problem +
                      "; MASTER_ADDR and MASTER_PORT must be the same for all ranks");
    }
    std::this_thread::sleep_for(kRetry);
  }
}

Descriptor accept_from(const Descriptor& listener) {
  return Descriptor(::accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC));
}

bool send_bytes(const Descriptor& to, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(to.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

std::optional<std::size_t> send_some(const Descriptor& to, std::string_view bytes) {
  while (true) {
    const ssize_t sent = ::send(to.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) return std::nullopt;
  }
}

void shut_down(const Descriptor& connection) {
  ::shutdown(connection.number(), SHUT_RDWR);
}

bool receive_bytes(const Descriptor& from, FrameBuffer& into) {
  thread_local std::array<char, 1 << 16> piece;
  const ssize_t got = ::recv(from.number(), piece.data(), piece.size(), MSG_DONTWAIT);
  if (got > 0) into.append({piece.data(), static_cast<std::size_t>(got)});
  return got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK));
}

void set_connection_options(const Descriptor& connection, Seconds limit) {
  set(connection, IPPROTO_TCP, TCP_NODELAY, 1);
  set(connection, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(connection, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(connection, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(connection, IPPROTO_TCP, TCP_KEEPCNT, 3);
  timeval most{};
  most.tv_sec = static_cast<time_t>(std::max(1.0, limit.count()));
  ::setsockopt(connection.number(), SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
}

}  // namespace dflop
