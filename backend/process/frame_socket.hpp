// Processes of a run tell each other things in frames over TCP, which arrive whole.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/units.hpp"

namespace dflop {

/// A Descriptor is a file descriptor that is closed with the object.
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

/// A FrameKind says what a frame means, and what is in its key and value.
enum class FrameKind : std::uint8_t {
  hello,    ///< key: "rank ranks"; value: the run's token
  welcome,  ///< to all, once all have said hello
  refused,  ///< value: why the hello is not taken
  put,      ///< key, how many will get it; value
  get,      ///< key, and in `readers` the rank that puts it
  value,    ///< as get, and the value: what was asked for
  ping,
  pong,       ///< value: the clock of rank 0
  abort,      ///< value: why the sender ends the run
  late,       ///< the sender has waited for too long
  ask,        ///< what do you wait for?
  state,      ///< value: the answer
  ended,      ///< to all: the run has ended; key: the rank that waited for too long, if any; value: why
  bye,        ///< the sender has come to its end
  gone,       ///< to all: so have all others
  challenge,  ///< the hello is taken; value: to be sent back
  proof,      ///< value: the challenge's
};

/// A Frame is one message between a rank and the rendezvous.
struct Frame {
  FrameKind kind = FrameKind::hello;
  std::string key;
  std::uint32_t readers = 0;
  std::string value;
};

/// Returns the bytes of a frame: "DFL1", kind (1 byte), bytes of the key (4), readers (4), bytes of the value
/// (8), as they lie in memory; then key and value.
std::string to_bytes(const Frame& frame);

/// Returns what of a frame's bytes stands before its value, which has so many bytes.
std::string head_bytes(const Frame& frame, std::uint64_t value_bytes);

/// A FrameBuffer makes frames out of a stream of bytes that come in any pieces.
class FrameBuffer {
 public:
  void append(std::string_view bytes) { bytes_.append(bytes); }
  /// Returns the next frame that is there in full.
  /// @throws Error (input) for bytes that are none, or one with a longer key than kMostKeyBytes, or a longer
  /// value than `most`, or than kMostWordBytes in kinds that carry no value of a rank.
  std::optional<Frame> next(std::uint64_t most);

 private:
  std::string bytes_;
};

/// A key has at most so many bytes: the longest name the ranks of a communicator.
inline constexpr std::uint64_t kMostKeyBytes = 1 << 16;
/// The value of a frame has at most so many bytes once all ranks have met: values are for control.
inline constexpr std::uint64_t kMostValueBytes = std::uint64_t{1} << 30;
/// A reason or state that a rank tells has at most so many bytes.
inline constexpr std::uint64_t kMostWordBytes = 1 << 16;
/// A hello, and any answer to it, has at most so many.
inline constexpr std::uint64_t kMostHelloBytes = 4096;

/// A thread that waits for frames wakes after so many milliseconds, to see what time is up and whether to
/// stop.
inline constexpr int kTickMs = 100;

using Deadline = std::chrono::steady_clock::time_point;

/// Returns the time that is `time` from now.
inline Deadline in_time(Seconds time) {
  return Deadline::clock::now() + std::chrono::duration_cast<Deadline::duration>(time);
}

/// Listens at a name or address of this machine; at all of its addresses where that is none of its own, as
/// behind a gateway, or a name (but localhost) that only this machine knows by its loopback address.
/// @throws Error (internal) with the system's reason, as "address already in use".
Descriptor listen_on(const std::string& host, int port);

/// Connects, trying until the deadline, as who listens may come later.
/// @throws Error (internal) with the system's last reason; Error (usage) for a name that is not known then.
Descriptor connect_to(const std::string& host, int port, Deadline deadline);

/// Returns the next connection; closed where there is none now, with the system's reason in errno.
Descriptor accept_from(const Descriptor& listener);

/// Sends all bytes; returns false where the other side is gone, or takes nothing for as long as the
/// connection's limit.
bool send_bytes(const Descriptor& to, std::string_view bytes);

/// Sends what the connection takes at once, and returns how many bytes that was; none where the other side is
/// gone.
std::optional<std::size_t> send_some(const Descriptor& to, std::string_view bytes);

/// Ends a connection: neither side receives anything any more.
void shut_down(const Descriptor& connection);

/// Appends the bytes that have come; returns false at its end.
bool receive_bytes(const Descriptor& from, FrameBuffer& into);

/// Lets a connection notice within about half a minute that the other machine is lost, as long as nothing is
/// under way to it, send small frames at once, and give up sending to who reads nothing for `limit`.
void set_connection_options(const Descriptor& connection, Seconds limit);

}  // namespace dflop
