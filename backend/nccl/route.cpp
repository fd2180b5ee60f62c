#include "backend/nccl/route.hpp"

#include <algorithm>

namespace dflop {
namespace {

constexpr int kSource = 0;
constexpr int kDestination = 1;

/// A message without bytes is one that arrives.
std::size_t on_the_way(std::size_t bytes) {
  return std::max<std::size_t>(bytes, 1);
}

}  // namespace

std::unique_ptr<Buffer> NcclMemory::take(std::size_t bytes, DeviceStream& user) {
  std::unique_ptr<Buffer> buffer = device_->allocate(bytes);
  const std::unique_ptr<DeviceEvent> taken = device_->make_event();
  stream_->record(*taken);
  user.wait(*taken);
  return buffer;
}

NcclRoute::NcclRoute(const NcclParts& parts, const RankRoute& route, bool is_source)
    : parts_(parts),
      comm_(parts.comms.make({route.source, route.destination}, is_source ? kSource : kDestination,
                             "the route from rank " + std::to_string(route.source) + " to rank " +
                                 std::to_string(route.destination),
                             kRouteCtas)),
      stream_(parts.seam.new_device()->make_stream()),
      nothing_(parts.memory.take(1, *stream_)) {}

/// Returns a copy that is free, or a new one: waiting for one would be waiting for the receiver.
NcclRoute::Copy& NcclRoute::copy_of(std::size_t bytes, DeviceStream& stream) {
  for (std::size_t i = 0; i < copies_.size() && is_sent(copies_[i]); ++i) {
    if (copies_[i].buffer->bytes() < bytes) continue;
    copies_.push_back(std::move(copies_[i]));
    copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(i));
    return copies_.back();
  }
  while (!copies_.empty() && is_sent(copies_.front())) copies_.pop_front();  // all of them too small
  copies_.push_back(
      {parts_.memory.take(bytes, stream), parts_.memory.make_event(), parts_.memory.make_event()});
  return copies_.back();
}

void NcclRoute::send(const void* data, std::size_t bytes, DeviceStream& stream, const std::string& what) {
  Copy& copy = copy_of(on_the_way(bytes), stream);
  if (bytes > 0) stream.copy(copy.buffer->data(), data, bytes);
  stream.record(*copy.copied);
  stream_->wait(*copy.copied);
  parts_.comms.enter(comm_, what, [&] {
    return parts_.table.send(copy.buffer->data(), on_the_way(bytes), ncclUint8, kDestination, comm_,
                             parts_.seam.native_stream(*stream_));
  });
  stream_->record(*copy.sent);
}

std::shared_ptr<DeviceEvent> NcclRoute::receive(void* data, std::size_t bytes, DeviceStream& stream,
                                                DeviceEvent& come, const std::string& what) {
  stream_->wait(come);  // until then the memory may be in use
  void* into = bytes > 0 ? data : nothing_->data();
  parts_.comms.enter(comm_, what, [&] {
    return parts_.table.recv(into, on_the_way(bytes), ncclUint8, kSource, comm_,
                             parts_.seam.native_stream(*stream_));
  });
  std::shared_ptr<DeviceEvent> there = parts_.memory.make_event();
  stream_->record(*there);
  stream.wait(*there);
  return there;
}

bool NcclRoute::all_sent() const {
  return std::all_of(copies_.begin(), copies_.end(), [&](const Copy& copy) { return is_sent(copy); });
}

}  // namespace dflop
