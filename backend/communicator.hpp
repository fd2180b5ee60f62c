// Communication between the ranks of a run, whatever carries it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device.hpp"
#include "core/error.hpp"
#include "kernels/kernels.hpp"

namespace dflop {

/// Ranks that do collectives together, in the order in which sums are taken and pieces are gathered. Every
/// one of them names the same ranks in the same order.
struct RankGroup {
  std::vector<std::int32_t> ranks;
};

/// What a collective sums: values in their own type.
enum class Element : std::uint8_t { f32, f64, bf16 };
std::string_view to_string(Element element);
std::size_t bytes_of(Element element);  ///< of one value

/// A run that another rank has ended. What it says tells of that rank's failure.
class Aborted : public Error {
 public:
  using Error::Error;
};

/// A time that the device may not have come to yet; asking for it waits until it has.
using Arrival = std::function<Nanoseconds()>;

/// One rank's end. Every call enters its work into a stream, which waits there; calls of one rank are made
/// by one thread. What is sent between two ranks arrives in order, and is received with the same bytes.
/// Collectives of a group are entered by all its ranks in the same order.
///
/// @throws Aborted from every call, or the stream's next synchronize(), once any rank has called abort(), and
/// Error (internal) where a rank waits for longer than the run's timeout; the message has what each rank of
/// the run was waiting for.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  /// `what` is for messages, as "activations of microbatch 3 to llm 1". The memory may be reused once
  /// `stream` has come past the call. No bytes are a message too. A rank sends nothing to itself, which is
  /// an error (internal): that is a DeviceStream's copy.
  virtual void send(const void* data, std::size_t bytes, int peer, DeviceStream& stream,
                    const std::string& what) = 0;
  virtual void receive(void* data, std::size_t bytes, int peer, DeviceStream& stream,
                       const std::string& what) = 0;

  /// data[i] = sum over the group's ranks, in their order, of data[i]: the same bits on every rank.
  virtual void all_reduce(void* data, std::size_t count, Element element, const RankGroup& group,
                          DeviceStream& stream, const std::string& what) = 0;
  /// all[r * count + i] = one[i] of the group's rank r. `one` may be this rank's part of `all`.
  virtual void all_gather(void* all, const void* one, std::size_t count, Element element,
                          const RankGroup& group, DeviceStream& stream, const std::string& what) = 0;
  /// one[i] = sum over the group's ranks of their all[p * count + i], p being this rank's place in the group.
  /// `one` may be this rank's part of `all`, whose other parts are kept.
  virtual void reduce_scatter(void* one, const void* all, std::size_t count, Element element,
                              const RankGroup& group, DeviceStream& stream, const std::string& what) = 0;

  /// When the data of the last receive was there, or all ranks of the last collective had come, on the clock
  /// of DeviceEvent::time(); 0 before the first of them. What came before the call that took it did not have
  /// to be waited for.
  virtual Nanoseconds last_arrival() const = 0;
  /// The same, to be asked for later: where streams run behind their threads it waits for nothing now.
  virtual Arrival arrival() const {
    return [time = last_arrival()] { return time; };
  }

  /// Ends the run for all ranks, which are told why.
  virtual void abort(const std::string& reason) = 0;
};

}  // namespace dflop
