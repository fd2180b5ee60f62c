// A Communicator is the interface through which the ranks of a run exchange messages and run collectives.
// Implementations use threads, CUDA streams or NCCL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/device.hpp"
#include "core/error.hpp"
#include "core/names.hpp"
#include "kernels/kernels.hpp"

namespace dflop {

/// A RankGroup lists the ranks that take part in a collective. Collectives add and gather the ranks' data in
/// the order of this list. All ranks of a group must list the same ranks in the same order.
struct RankGroup {
  std::vector<std::int32_t> ranks;
};

/// Returns the group of the `count` ranks that start at `first`.
RankGroup consecutive_ranks(int first, int count);

/// A RankRoute is the path of messages from one rank to another. The opposite direction is a separate route.
struct RankRoute {
  int source = 0;
  int destination = 0;
  auto operator<=>(const RankRoute&) const = default;
};

/// A CollectiveKind is one of Communicator's collectives.
enum class CollectiveKind : std::uint8_t { all_reduce, all_gather, reduce_scatter };

template <>
inline constexpr NameTable<CollectiveKind, 3> kNames<CollectiveKind> = {
    {{CollectiveKind::all_reduce, "all-reduce"},
     {CollectiveKind::all_gather, "all-gather"},
     {CollectiveKind::reduce_scatter, "reduce-scatter"}}};

/// A CollectiveCall describes a collective. All ranks of the group must pass the same `kind`, `count` and
/// `element`. `what` names the collective in error messages.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::all_reduce;
  std::size_t count = 0;
  DType element = DType::f32;
  std::string what;
};

/// Returns a rank's name for messages: "rank 3".
inline std::string rank_name(int rank) {
  return "rank " + std::to_string(rank);
}

/// Aborted is thrown when another rank has ended the run. Its message describes that rank's failure.
class Aborted : public Error {
 public:
  using Error::Error;
};

/// An Arrival is a function that returns the time of an event on the device. It waits until the device has
/// reached that event.
using Arrival = std::function<Nanoseconds()>;

/// A StartedCollective is a collective between start() and finish(). Each communicator derives its own class
/// from it.
class StartedCollective {
 public:
  virtual ~StartedCollective() = default;
};

/// A Communicator is one rank's endpoint for messages and collectives. Every call enqueues its work in a
/// stream. Only one thread makes a rank's calls. Messages between two ranks arrive in order and unchanged.
/// All ranks of a group must enter its collectives in the same order.
///
/// @throws Aborted once any rank has called abort(), from every call or from the stream's next
/// synchronize(); Error (internal) if a rank waits longer than the run's timeout, with a message that lists
/// what each rank was waiting for
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  /// Sends `bytes` bytes to the rank `peer`. `what` names the message in errors, for example "activations of
  /// microbatch 3 to llm 1". The memory may be reused after `stream` has passed the call. Empty messages are
  /// sent, too. Sending to oneself is an error (internal); use DeviceStream::copy() instead.
  virtual void send(const void* data, std::size_t bytes, int peer, DeviceStream& stream,
                    const std::string& what) = 0;
  /// Receives the next message from the rank `peer`. The message must have `bytes` bytes.
  virtual void receive(void* data, std::size_t bytes, int peer, DeviceStream& stream,
                       const std::string& what) = 0;
  /// Returns whether a send blocks its device until the receiver has entered the matching receive. If so, a
  /// caller that may wait for the whole device while messages are in flight must call post_receive()
  /// (core/program/receive_posts.hpp).
  virtual bool posts_receives() const { return false; }
  /// Enters a receive ahead of the matching receive(), which is called later with the same arguments. Posted
  /// receives are completed in the order in which they were posted. The memory may be written as soon as
  /// `stream` reaches this call. On a connected route (see connect()) this call does not wait for the
  /// sender. It does nothing if posts_receives() is false.
  virtual void post_receive(void* /*data*/, std::size_t /*bytes*/, int /*peer*/, DeviceStream& /*stream*/,
                            const std::string& /*what*/) {}
  /// Prepares routes for messages. All ranks of the run pass the same routes in the same order. The two
  /// ranks of a new route wait for each other. On a connected route a send never waits for its receiver. On
  /// any other route the first send may wait for its receiver.
  virtual void connect(const std::vector<RankRoute>&) {}

  /// Sets data[i] = sum over the group's ranks of data[i]. All ranks of the group get the same bits.
  /// Communicators within one process add in the group's order; for bf16 they add in f32 and round once. NCCL
  /// uses its own order, which may change with its version, the machines and `count`, and it adds bf16 in
  /// bf16 from rank to rank.
  void all_reduce(void* data, std::size_t count, DType element, const RankGroup& group, DeviceStream& stream,
                  const std::string& what) {
    collective({CollectiveKind::all_reduce, count, element, what}, data, data, group, stream);
  }
  /// Sets all[r * count + i] = one[i] of the group's rank r. `one` may alias this rank's part of `all`.
  void all_gather(void* all, const void* one, std::size_t count, DType element, const RankGroup& group,
                  DeviceStream& stream, const std::string& what) {
    collective({CollectiveKind::all_gather, count, element, what}, one, all, group, stream);
  }
  /// Sets one[i] = sum over the group's ranks of all[p * count + i], where p is this rank's index in the
  /// group. `one` may alias this rank's part of `all`; the other parts of `all` stay unchanged.
  void reduce_scatter(void* one, const void* all, std::size_t count, DType element, const RankGroup& group,
                      DeviceStream& stream, const std::string& what) {
    collective({CollectiveKind::reduce_scatter, count, element, what}, all, one, group, stream);
  }
  /// Runs the collective that `call` describes. It reads `input` and writes `output`. They may overlap only
  /// as all_reduce(), all_gather() and reduce_scatter() describe.
  virtual void collective(const CollectiveCall& call, const void* input, void* output, const RankGroup& group,
                          DeviceStream& stream) = 0;

  /// Enters a collective without waiting, so that later work in `stream` overlaps with it. The collective
  /// reads `input` when the stream reaches this call. Do not touch input and output until finish(). Call
  /// finish() before the communicator is destroyed.
  virtual std::unique_ptr<StartedCollective> start(const CollectiveCall& call, const void* input,
                                                   void* output, const RankGroup& group,
                                                   DeviceStream& stream) = 0;
  /// Makes later work in `stream` wait for a collective that start() began. All ranks of a group must finish
  /// its collectives in the order in which they started them, each once.
  virtual void finish(StartedCollective& started, DeviceStream& stream) = 0;

  /// Returns a function for the latest receive or collective. It gives the time, on the clock of
  /// DeviceEvent::time(), at which the received data had arrived or all ranks had entered the collective; 0
  /// before the first receive or collective. For a collective between processes, the function gives the time
  /// at which this rank entered; the latest of all ranks' times is when all had entered. arrival() itself
  /// does not wait for the device; the returned function may wait.
  virtual Arrival arrival() const = 0;
  Nanoseconds last_arrival() const { return arrival()(); }

  /// Ends the run for all ranks and tells them the reason.
  virtual void abort(const std::string& reason) = 0;
};

// Every communicator uses these functions to check its callers.

/// Checks that messages can be sent to or received from `peer`.
/// @throws Error (internal) "rank 0 sends a letter to rank 7: ..." if the peer is this rank or is not a rank
/// of the run. `does` is "sends a letter to".
void require_peer(const Communicator& communicator, int peer, const std::string& does);

/// Returns the index of the communicator's rank in the group.
/// @throws Error (internal) that names `what` if the group does not list the communicator's rank, lists a
/// rank twice, or lists a rank that is not in the run.
std::size_t place_in(const RankGroup& group, const Communicator& communicator, const std::string& what);

}  // namespace dflop
