// Emulates the processes of a run by threads with a World each. They share only a rendezvous and a fake NCCL.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backend/process/process_world.hpp"
#include "core/support/clock.hpp"
#include "tests/backend/async_device.hpp"
#include "tests/backend/forwarding.hpp"
#include "tests/backend/nccl/fake.hpp"
#include "tests/backend/process/free_port.hpp"
#include "tests/backend/process/in_processes.hpp"

namespace dflop::testing {

/// A FakeDevice describes the behavior of a process's device.
struct FakeDevice {
  /// If set, each compute step and optimizer step waits until all work that its rank has entered is done, as
  /// on a GPU that loads code, and so does the compute before and after the start of a sum. A longer wait
  /// than this is a failure.
  std::optional<Seconds> patience = {};
  bool posts_receives = true;                 ///< as NCCL's communicator requires
  std::vector<std::string>* noted = nullptr;  ///< records "start" of sums and "send"
  int noting = 0;                             ///< the rank that records
};

/// A communicator that records its operations.
class Noted final : public ForwardingCommunicator {
 public:
  Noted(std::unique_ptr<Communicator> to, std::vector<std::string>& noted)
      : ForwardingCommunicator(std::move(to)), noted_(noted) {}
  std::unique_ptr<StartedCollective> start(const CollectiveCall& call, const void* input, void* output,
                                           const RankGroup& members, DeviceStream& stream) override {
    noted_.emplace_back("start");
    return ForwardingCommunicator::start(call, input, output, members, stream);
  }
  void send(const void* data, std::size_t bytes, int peer, DeviceStream& stream,
            const std::string& what) override {
    noted_.emplace_back("send");
    ForwardingCommunicator::send(data, bytes, peer, stream, what);
  }

 private:
  std::vector<std::string>& noted_;
};

/// A communicator without receives posted ahead.
class WithoutPosts final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  bool posts_receives() const override { return false; }
};

/// A communicator whose device waits for all of its work before and after the start of a sum.
class Draining final : public ForwardingCommunicator {
 public:
  Draining(std::unique_ptr<Communicator> to, std::function<void()> drain)
      : ForwardingCommunicator(std::move(to)), drain_(std::move(drain)) {}
  std::unique_ptr<StartedCollective> start(const CollectiveCall& call, const void* input, void* output,
                                           const RankGroup& members, DeviceStream& stream) override {
    drain_();
    auto started = ForwardingCommunicator::start(call, input, output, members, stream);
    drain_();
    return started;
  }

 private:
  std::function<void()> drain_;
};

/// A process with one rank, on the host.
class FakeProcess final : public ProcessWorld {
 public:
  FakeProcess(int rank, int ranks, int port, const FakeDevice& device = {})
      : ProcessWorld({"127.0.0.1", port, rank, ranks, Seconds{60}, Seconds{60}}), device_(device) {}
  std::string device_name() const override { return "host"; }
  std::unique_ptr<Device> make_device(int rank) override {
    return std::make_unique<AsyncDevice>(rank, true, gpu_);
  }
  std::unique_ptr<Communicator> make_communicator(int rank) override {
    auto nccl = make_nccl_communicator(fake_nccl(), rendezvous(), fake_seam(rank, gpu_));
    if (device_.noted != nullptr && rank == device_.noting)
      return std::make_unique<Noted>(std::move(nccl), *device_.noted);
    if (device_.patience && device_.posts_receives)
      return std::make_unique<Draining>(std::move(nccl), [this] { drain(); });
    if (device_.posts_receives) return nccl;
    return std::make_unique<WithoutPosts>(std::move(nccl));
  }
  std::unique_ptr<ComputeTurn> make_turn(int, const RankGroup&) override {
    if (!device_.patience) return nullptr;
    return std::make_unique<ComputeTurn>(ComputeTurn{[this] { return drain(); }, [] {}});
  }
  /// These threads read one clock, so the true offset is 0. The measured offset may be wrong by milliseconds
  /// on a busy machine.
  Nanoseconds clock_offset() override {
    ProcessWorld::clock_offset();
    return Nanoseconds{0};
  }

 private:
  Nanoseconds drain() {
    const Nanoseconds since = host_time();
    while (!gpu_->is_idle()) {
      rendezvous().check();
      if (host_time() - since > to_nanoseconds(*device_.patience)) {
        throw Error(ErrorKind::internal, "a step waits for the device for ever");
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return host_time();
  }

  FakeDevice device_;
  std::shared_ptr<AsyncGpu> gpu_ = std::make_shared<AsyncGpu>();
};

using Body = std::function<void(FakeProcess&)>;

/// Runs `body` in `ranks` processes. Returns the message of each one's exception; empty if there was none.
inline std::vector<std::string> run_processes(int ranks, const Body& body, const FakeDevice& device = {}) {
  forget_fake_nccl_calls();
  const int port = free_port();
  std::vector<std::string> messages = messages_of_processes(ranks, [&](int rank) {
    FakeProcess process(rank, ranks, port, device);
    body(process);
  });
  EXPECT_EQ(fake_nccl_faults(), std::vector<std::string>{});
  return messages;
}

}  // namespace dflop::testing
