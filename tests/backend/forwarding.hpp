// A device and a communicator that forward every call. Tests override some calls to change or watch them.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/communicator.hpp"
#include "backend/device.hpp"

namespace dflop::testing {

class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(std::unique_ptr<Device> to) : to_(std::move(to)) {}
  std::string name() const override { return to_->name(); }
  bool is_synchronous() const override { return to_->is_synchronous(); }
  void enter_thread() override { to_->enter_thread(); }
  Bytes cache() const override { return to_->cache(); }
  int row_alignment() const override { return to_->row_alignment(); }
  std::unique_ptr<Buffer> allocate(std::size_t bytes) override { return to_->allocate(bytes); }
  std::unique_ptr<DeviceStream> make_stream() override { return to_->make_stream(); }
  std::unique_ptr<DeviceEvent> make_event() override { return to_->make_event(); }
  std::unique_ptr<Kernels> make_kernels(DeviceStream& stream, DType dtype) override {
    return to_->make_kernels(stream, dtype);
  }
  Bytes in_use() const override { return to_->in_use(); }
  Bytes most_in_use() const override { return to_->most_in_use(); }
  void reset_most_in_use() override { to_->reset_most_in_use(); }

 private:
  std::unique_ptr<Device> to_;
};

class ForwardingCommunicator : public Communicator {
 public:
  explicit ForwardingCommunicator(std::unique_ptr<Communicator> to) : to_(std::move(to)) {}
  int rank() const override { return to_->rank(); }
  int ranks() const override { return to_->ranks(); }
  void send(const void* data, std::size_t bytes, int peer, DeviceStream& stream,
            const std::string& what) override {
    to_->send(data, bytes, peer, stream, what);
  }
  void receive(void* data, std::size_t bytes, int peer, DeviceStream& stream,
               const std::string& what) override {
    to_->receive(data, bytes, peer, stream, what);
  }
  bool posts_receives() const override { return to_->posts_receives(); }
  void post_receive(void* data, std::size_t bytes, int peer, DeviceStream& stream,
                    const std::string& what) override {
    to_->post_receive(data, bytes, peer, stream, what);
  }
  void connect(const std::vector<RankRoute>& routes) override { to_->connect(routes); }
  void collective(const CollectiveCall& call, const void* input, void* output, const RankGroup& group,
                  DeviceStream& stream) override {
    to_->collective(call, input, output, group, stream);
  }
  std::unique_ptr<StartedCollective> start(const CollectiveCall& call, const void* input, void* output,
                                           const RankGroup& group, DeviceStream& stream) override {
    return to_->start(call, input, output, group, stream);
  }
  void finish(StartedCollective& started, DeviceStream& stream) override { to_->finish(started, stream); }
  Arrival arrival() const override { return to_->arrival(); }
  void abort(const std::string& reason) override { to_->abort(reason); }

 private:
  std::unique_ptr<Communicator> to_;
};

}  // namespace dflop::testing
