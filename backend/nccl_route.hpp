// One direction between two ranks: a communicator of NCCL, a stream, and copies of what is being sent.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "backend/nccl_comms.hpp"
#include "backend/nccl_communicator.hpp"

namespace dflop {

/// What a route works with; all outlive it.
struct NcclParts {
  const NcclTable& table;
  NcclComms& comms;
  Device& device;
  const NcclSeam& seam;
};

/// This rank's end of it. NCCL counts the source as rank 0 and the destination as 1.
class NcclRoute {
 public:
  /// Waits until the other end is made.
  NcclRoute(const NcclParts& parts, const Route& route, bool is_source);

  /// Returns when the copy and the send are in their streams, and where it is the route's first operation
  /// when the other end's first is entered too.
  void send(const void* data, std::size_t bytes, DeviceStream& stream, const std::string& what);
  /// `stream` waits for it; the event that is given back is recorded when it is there.
  std::shared_ptr<DeviceEvent> receive(void* data, std::size_t bytes, DeviceStream& stream, DeviceEvent& come,
                                       const std::string& what);
  bool all_sent() const;

 private:
  /// A copy of a message until it is sent, and for later ones after that.
  struct Copy {
    std::unique_ptr<Buffer> buffer;
    std::unique_ptr<DeviceEvent> copied;
    std::unique_ptr<DeviceEvent> sent;
  };

  Copy& copy_of(std::size_t bytes);
  bool is_sent(const Copy& copy) const { return parts_.seam.reached(*copy.sent); }

  NcclParts parts_;
  ncclComm_t comm_;
  std::unique_ptr<DeviceStream> stream_;
  std::unique_ptr<Buffer> nothing_;  // where messages without bytes arrive, which go as one
  std::deque<Copy> copies_;
};

}  // namespace dflop
