// A route is one direction between two ranks: a communicator of NCCL, a stream, and copies of what is being
// sent.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "backend/nccl/comms.hpp"
#include "backend/nccl/communicator.hpp"

namespace dflop {

/// NcclMemory is taken and given back in a stream of its own, which does nothing else: so it never waits.
class NcclMemory {
 public:
  explicit NcclMemory(const NcclSeam& seam) : device_(seam.new_device()), stream_(device_->make_stream()) {}

  /// Returns memory that is there when `user` comes past the call; nothing works on it any more when it is
  /// given back.
  std::unique_ptr<Buffer> take(std::size_t bytes, DeviceStream& user);
  std::unique_ptr<DeviceEvent> make_event() { return device_->make_event(); }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceStream> stream_;
};

/// NcclParts are what a route works with; all outlive it.
struct NcclParts {
  const NcclTable& table;
  NcclComms& comms;
  NcclMemory& memory;
  const NcclSeam& seam;
};

/// An NcclRoute is this rank's end of a route. NCCL counts the source as rank 0 and the destination as 1.
class NcclRoute {
 public:
  /// Waits until the other end is made.
  NcclRoute(const NcclParts& parts, const RankRoute& route, bool is_source);

  /// Sends, and returns when the copy and the send are in their streams, and where it is the route's first
  /// operation when the other end's first is entered too.
  void send(const void* data, std::size_t bytes, DeviceStream& stream, const std::string& what);
  /// Receives; `stream` waits for it, and the event that is given back is recorded when it is there.
  std::shared_ptr<DeviceEvent> receive(void* data, std::size_t bytes, DeviceStream& stream, DeviceEvent& come,
                                       const std::string& what);
  bool all_sent() const;  ///< that was to be sent by now

 private:
  /// A Copy holds a message until it is sent, and later ones after that.
  struct Copy {
    std::unique_ptr<Buffer> buffer;
    std::unique_ptr<DeviceEvent> copied;
    std::unique_ptr<DeviceEvent> sent;
  };

  Copy& copy_of(std::size_t bytes, DeviceStream& stream);
  bool is_sent(const Copy& copy) const { return parts_.seam.reached(*copy.sent); }

  NcclParts parts_;
  ncclComm_t comm_;
  std::unique_ptr<DeviceStream> stream_;
  std::unique_ptr<Buffer> nothing_;  // where messages without bytes arrive, which go as one
  std::deque<Copy> copies_;
};

}  // namespace dflop
