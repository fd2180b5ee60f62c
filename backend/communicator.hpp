// This is communication between the ranks of a run, whatever carries it.
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

/// A RankGroup has the ranks that do collectives together, in the order in which sums are taken and pieces
/// are gathered. Every one of them names the same ranks in the same order.
struct RankGroup {
  std::vector<std::int32_t> ranks;
};

/// Returns the group of `count` ranks from `first` on.
RankGroup consecutive_ranks(int first, int count);

/// A RankRoute leads from one rank to another.
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

/// A CollectiveCall is what the ranks of a collective must agree on; `what` is for messages.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::all_reduce;
  std::size_t count = 0;
  DType element = DType::f32;
  std::string what;
};

/// Returns a rank's name in messages: "rank 3".
inline std::string rank_name(int rank) {
  return "rank " + std::to_string(rank);
}

/// Aborted says that another rank has ended the run. Its message tells of that rank's failure.
class Aborted : public Error {
 public:
  using Error::Error;
};

/// An Arrival is a time that the device may not have come to yet; asking for it waits until it has.
using Arrival = std::function<Nanoseconds()>;

/// A StartedCollective is one that a rank has entered and not come back to. Communicators derive theirs from
/// it.
class StartedCollective {
 public:
  virtual ~StartedCollective() = default;
};

/// A Communicator is one rank's end of all communication. Every call enters its work into a stream, which
/// waits there; calls of one rank are made by one thread. What is sent between two ranks arrives in order,
/// and is received with the same bytes. Collectives of a group are entered by all its ranks in the same
/// order.
///
/// @throws Aborted from every call, or the stream's next synchronize(), once any rank has called abort(), and
/// Error (internal) where a rank waits for longer than the run's timeout; the message has what each rank of
/// the run was waiting for.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  /// Sends `bytes` bytes to the rank `peer`. `what` is for messages, as "activations of microbatch 3 to
  /// llm 1". The memory may be reused once `stream` has come past the call. No bytes are a message too. A
  /// rank sends nothing to itself, which is an error (internal): that is a DeviceStream's copy.
  virtual void send(const void* data, std::size_t bytes, int peer, DeviceStream& stream,
                    const std::string& what) = 0;
  /// Receives the next message of `peer`, which has so many bytes.
  virtual void receive(void* data, std::size_t bytes, int peer, DeviceStream& stream,
                       const std::string& what) = 0;
  /// Returns whether a send holds up its device until its receive is entered. Whoever may wait for the whole
  /// device while messages are under way then posts receives ahead (core/program/receive_posts.hpp).
  virtual bool posts_receives() const { return false; }
  /// Enters a receive for which receive() will be called with the same arguments, after those that were
  /// posted before it; the memory is written to from when `stream` has come to this call. Waits for nobody on
  /// a route that is connected. Does nothing where posts_receives() is false.
  virtual void post_receive(void* /*data*/, std::size_t /*bytes*/, int /*peer*/, DeviceStream& /*stream*/,
                            const std::string& /*what*/) {}
  /// Makes ready what messages will go over. All ranks of the run name the same routes, in one order, and
  /// those at either end of a new one wait for each other. On a route that was not connected the first send
  /// may wait for its receive; else a send never waits for its receiver.
  virtual void connect(const std::vector<RankRoute>&) {}

  /// Sets data[i] = sum over the group's ranks, in their order, of data[i]: the same bits on every rank. The
  /// order is a promise of communicators within one process. NCCL adds in an order of its own, which may
  /// change with its version, the machines and `count`, and bf16 in bf16 from rank to rank, where these add
  /// in f32 and round once; what all ranks of one sum get has the same bits there too.
  void all_reduce(void* data, std::size_t count, DType element, const RankGroup& group, DeviceStream& stream,
                  const std::string& what) {
    collective({CollectiveKind::all_reduce, count, element, what}, data, data, group, stream);
  }
  /// Sets all[r * count + i] = one[i] of the group's rank r. `one` may be this rank's part of `all`.
  void all_gather(void* all, const void* one, std::size_t count, DType element, const RankGroup& group,
                  DeviceStream& stream, const std::string& what) {
    collective({CollectiveKind::all_gather, count, element, what}, one, all, group, stream);
  }
  /// Sets one[i] = sum over the group's ranks of their all[p * count + i], p being this rank's place in the
  /// group. `one` may be this rank's part of `all`, whose other parts are kept.
  void reduce_scatter(void* one, const void* all, std::size_t count, DType element, const RankGroup& group,
                      DeviceStream& stream, const std::string& what) {
    collective({CollectiveKind::reduce_scatter, count, element, what}, all, one, group, stream);
  }
  /// Does the collective that `call` names: it reads `input` and writes `output`, which may overlap as the
  /// three calls above say.
  virtual void collective(const CollectiveCall& call, const void* input, void* output, const RankGroup& group,
                          DeviceStream& stream) = 0;

  /// Enters a collective, and waits for nobody: what `stream` does after the call goes on beside it. Input is
  /// as it is when the stream comes to the call. Input and output are left alone until finish(), which comes
  /// before the communicator's end.
  virtual std::unique_ptr<StartedCollective> start(const CollectiveCall& call, const void* input,
                                                   void* output, const RankGroup& group,
                                                   DeviceStream& stream) = 0;
  /// Lets what comes after the call wait for a collective of start(). All ranks finish those of a group in
  /// the order of start(), each once.
  virtual void finish(StartedCollective& started, DeviceStream& stream) = 0;

  /// Returns a function that says when the data of the last receive was there, or all ranks of the last
  /// collective had come, on the clock of DeviceEvent::time(); 0 before the first of them. What came before
  /// the call that took it did not have to be waited for. Of a collective between processes it is when this
  /// rank had come: the latest of its ranks' answers is when all had. Where streams run behind their threads
  /// this call waits for nothing, and the function that it returns waits for the device.
  virtual Arrival arrival() const = 0;
  Nanoseconds last_arrival() const { return arrival()(); }

  /// Ends the run for all ranks, which are told why.
  virtual void abort(const std::string& reason) = 0;
};

// Every communicator checks these of its callers.

/// Refuses a wrong peer.
/// @throws Error (internal) "rank 0 sends a letter to rank 7: ..." where the peer is this rank or no rank of
/// the run. `does` is "sends a letter to".
void require_peer(const Communicator& communicator, int peer, const std::string& does);

/// Returns the place of the communicator's rank in the group.
/// @throws Error (internal) where it is not there, or a rank stands twice or is not of the run.
std::size_t place_in(const RankGroup& group, const Communicator& communicator, const std::string& what);

}  // namespace dflop
