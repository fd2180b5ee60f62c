// Frames are the messages that the processes of a run exchange over TCP. This header declares their format
// and the socket functions that send and receive them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/units.hpp"

namespace dflop {

/// A Descriptor owns a file descriptor and closes it when it is destroyed.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  int number() const { return number_; }  ///< -1: none
  bool is_open() const { return number_ >= 0; }

 private:
  int number_ = -1;
};

/// A FrameKind defines a frame's meaning and the contents of its key and value.
enum class FrameKind : std::uint8_t {
  hello,    ///< key: "rank ranks"; value: the run's token
  welcome,  ///< to all ranks, when all have sent hello
  refused,  ///< value: why the hello was rejected
  put,      ///< key; `readers`: number of ranks that will get the value; value
  get,      ///< key; `readers`: the rank that puts the value
  value,    ///< key and `readers` of the get; value: the requested value
  ping,
  pong,   ///< value: the clock of rank 0
  abort,  ///< value: the sender's reason to end the run
  late,   ///< the sender has waited too long
  ask,    ///< asks a rank what it waits for
  state,  ///< value: the answer to ask
  ended,  ///< to all ranks: the run has ended; key: the rank that waited too long, if any; value: the reason
  bye,    ///< the sender has finished
  gone,   ///< to all ranks: all ranks have finished
  challenge,  ///< the hello is accepted; value: a text to send back
  proof,      ///< value: the text of the challenge
};

/// A Frame is one message between a rank and the rendezvous server.
struct Frame {
  FrameKind kind = FrameKind::hello;
  std::string key;
  std::uint32_t readers = 0;
  std::string value;
};

/// Returns the bytes of a frame: "DFL1", kind (1 byte), size of the key (4 bytes), readers (4 bytes) and size
/// of the value (8 bytes), in the machine's byte order; then the key and the value.
std::string to_bytes(const Frame& frame);

/// Returns the bytes of a frame that precede its value. The value has `value_bytes` bytes.
std::string head_bytes(const Frame& frame, std::uint64_t value_bytes);

/// A FrameBuffer assembles frames from a byte stream that arrives in pieces of any size.
class FrameBuffer {
 public:
  void append(std::string_view bytes) { bytes_.append(bytes); }
  /// Returns the next complete frame, if there is one.
  /// @throws Error (input) for bytes that are not a frame, for a key longer than kMaxKeyBytes, and for a
  /// value longer than `most`. In frames of kinds other than put, value and ended, a value may not be longer
  /// than kMaxWordBytes either.
  std::optional<Frame> next(std::uint64_t most);

 private:
  std::string bytes_;
};

/// A key has at most this many bytes. The longest keys name the ranks of a communicator.
inline constexpr std::uint64_t kMaxKeyBytes = 1 << 16;
/// After all ranks have joined, a frame's value has at most this many bytes. Values carry control data, not
/// tensors.
inline constexpr std::uint64_t kMaxValueBytes = std::uint64_t{1} << 30;
/// A reason or state that a rank sends has at most this many bytes.
inline constexpr std::uint64_t kMaxWordBytes = 1 << 16;
/// A hello, and any answer to it, has at most this many bytes.
inline constexpr std::uint64_t kMaxHelloBytes = 4096;

/// A thread that waits for frames wakes up at this interval to check for timeouts and stop requests.
inline constexpr int kTickMs = 100;

using Deadline = std::chrono::steady_clock::time_point;

/// Returns the deadline `time` from now.
inline Deadline in_time(Seconds time) {
  return Deadline::clock::now() + std::chrono::duration_cast<Deadline::duration>(time);
}

/// Listens at `host`, a name or address of this machine. Listens at all of the machine's addresses in two
/// cases: if the address of `host` is not one of them (for example behind a gateway), or if `host` is a name
/// other than localhost that resolves only to the loopback address.
/// @throws Error (internal) with the system's reason, such as "address already in use".
Descriptor listen_on(const std::string& host, int port);

/// Connects to `host`. Retries until the deadline, because the listener may start later.
/// @throws Error (internal) with the system's last reason; Error (usage) if the name is still unknown at the
/// deadline.
Descriptor connect_to(const std::string& host, int port, Deadline deadline);

/// Returns the next waiting connection. If there is none, returns a closed Descriptor, and errno holds the
/// reason.
Descriptor accept_from(const Descriptor& listener);

/// Sends all bytes. Returns false if the other side is gone or accepts no bytes for longer than the
/// connection's limit.
bool send_bytes(const Descriptor& to, std::string_view bytes);

/// Sends as many bytes as the connection accepts without waiting, and returns the number of sent bytes;
/// nullopt if the other side is gone.
std::optional<std::size_t> send_some(const Descriptor& to, std::string_view bytes);

/// Shuts a connection down in both directions.
void shut_down(const Descriptor& connection);

/// Appends the bytes that have arrived to `into`. Returns false if the connection has ended.
bool receive_bytes(const Descriptor& from, FrameBuffer& into);

/// Sets a connection's options: an idle connection detects a lost machine within about half a minute; small
/// frames are sent at once; sending fails if the other side reads nothing for `limit`.
void set_connection_options(const Descriptor& connection, Seconds limit);

}  // namespace dflop
