// The profiler on parts of devices: when neighbors rest and when they work.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backend/host/world.hpp"
#include "backend/profile/profiler.hpp"
#include "tests/backend/forwarding.hpp"
#include "tests/backend/run/live_model.hpp"

namespace dflop {
namespace neighbors_test {

constexpr int kTp = 2;
constexpr std::size_t kOptimizerBytes = std::size_t{4} << 20;  // of only its largest tensors

/// What the first measuring rank has seen at each of its largest tensors: how many tensors the first neighbor
/// had processed.
struct Seen {
  std::atomic<int> by_neighbor = 0;
  std::vector<int> at_optimizer;
};

class WatchedDevice final : public testing::ForwardingDevice {
 public:
  WatchedDevice(std::unique_ptr<Device> host, int rank, Seen& seen)
      : ForwardingDevice(std::move(host)), rank_(rank), seen_(seen) {}

  std::unique_ptr<Buffer> allocate(std::size_t bytes) override {
    if (rank_ == kTp) ++seen_.by_neighbor;
    if (rank_ == 0 && bytes == kOptimizerBytes) note();
    return ForwardingDevice::allocate(bytes);
  }

 private:
  /// The optimizer reads weight, gradient and two moments: first while neighbors rest, then while they work.
  /// The last access waits until a neighbor has made progress, as it does in practice.
  void note() {
    constexpr std::size_t kTensors = 4;
    constexpr std::chrono::seconds kLong{20};
    const auto until = std::chrono::steady_clock::now() + kLong;
    while (seen_.at_optimizer.size() == 2 * kTensors - 1 && seen_.by_neighbor == seen_.at_optimizer.back() &&
           std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    seen_.at_optimizer.push_back(seen_.by_neighbor);
  }

  int rank_;
  Seen& seen_;
};

/// Two devices of two cores, each with a measuring rank and a neighbor.
class WatchedWorld final : public World {
 public:
  WatchedWorld(std::unique_ptr<World> host, Seen& seen) : host_(std::move(host)), seen_(seen) {}
  std::string device_name() const override { return host_->device_name(); }
  int ranks() const override { return host_->ranks(); }
  int shared_devices() const override { return host_->shared_devices(); }
  int quanta() const override { return host_->quanta(); }
  std::unique_ptr<Device> make_device(int rank) override {
    return std::make_unique<WatchedDevice>(host_->make_device(rank), rank, seen_);
  }
  std::unique_ptr<Communicator> make_communicator(int rank) override {
    return host_->make_communicator(rank);
  }

 private:
  std::unique_ptr<World> host_;
  Seen& seen_;
};

/// The second rank of the tp group finishes while the first still measures its optimizer.
TEST(ProfilerNeighbors, IdleWhileTheOptimizerRunsAloneElseOverlapWithIt) {
  Seen seen;
  ProfilerOptions options;
  options.budget = Seconds(0.05);
  options.llm = {16, 16};
  options.modes = {{kTp, false}};
  options.shares = {0.5};
  options.make_shared_world = [&](int devices, double share) {
    WorldOptions shared;
    shared.device_cores = 2;
    shared.shared_devices = devices;
    shared.first_share = share;
    return std::make_unique<WatchedWorld>(std::make_unique<HostWorld>(2 * devices, shared), seen);
  };
  HostWorld world(kTp);
  measure_profile(testing::live_model(), world, options);
  ASSERT_EQ(seen.at_optimizer.size(), 8U);
  for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(seen.at_optimizer[i], seen.at_optimizer[0]) << i;
  EXPECT_GT(seen.at_optimizer[7], seen.at_optimizer[6]);
}

}  // namespace neighbors_test
}  // namespace dflop
