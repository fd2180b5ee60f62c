// The profiler on devices that report a cache: which rank flushes it, and that the tp group starts together.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "backend/host/world.hpp"
#include "backend/profile/profiler.hpp"
#include "tests/backend/forwarding.hpp"
#include "tests/backend/run/live_model.hpp"

namespace dflop {
namespace flush_test {

constexpr Bytes kCache{16 << 20};  // no other buffer is as large

/// The actions of a rank, written only by its thread.
struct Deeds {
  std::size_t largest_buffer = 0;
  int begins = 0;
};

class CachedDevice final : public testing::ForwardingDevice {
 public:
  CachedDevice(std::unique_ptr<Device> host, Deeds& deeds)
      : ForwardingDevice(std::move(host)), deeds_(deeds) {}
  Bytes cache() const override { return kCache; }
  std::unique_ptr<Buffer> allocate(std::size_t bytes) override {
    deeds_.largest_buffer = std::max(deeds_.largest_buffer, bytes);
    return ForwardingDevice::allocate(bytes);
  }

 private:
  Deeds& deeds_;
};

class WatchedCommunicator final : public testing::ForwardingCommunicator {
 public:
  WatchedCommunicator(std::unique_ptr<Communicator> host, Deeds& deeds)
      : ForwardingCommunicator(std::move(host)), deeds_(deeds) {}
  void collective(const CollectiveCall& call, const void* input, void* output, const RankGroup& group,
                  DeviceStream& stream) override {
    if (call.what == "the begin of a pass") ++deeds_.begins;
    ForwardingCommunicator::collective(call, input, output, group, stream);
  }

 private:
  Deeds& deeds_;
};

constexpr std::size_t kRanks = 4;

class CachedRanks final : public World {
 public:
  std::string device_name() const override { return host_->device_name(); }
  int ranks() const override { return host_->ranks(); }
  std::vector<int> local_ranks() const override { return host_->local_ranks(); }
  std::unique_ptr<Device> make_device(int rank) override {
    return std::make_unique<CachedDevice>(host_->make_device(rank), deeds(rank));
  }
  std::unique_ptr<Communicator> make_communicator(int rank) override {
    return std::make_unique<WatchedCommunicator>(host_->make_communicator(rank), deeds(rank));
  }
  Deeds& deeds(int rank) { return deeds_.at(static_cast<std::size_t>(rank)); }

 private:
  std::unique_ptr<World> host_ = std::make_unique<HostWorld>(kRanks);
  std::array<Deeds, kRanks> deeds_;
};

void measure(World& world, int tp) {
  ProfilerOptions options;
  options.budget = Seconds(0.05);
  options.llm = {32, 32};
  options.modes = {{tp, false}};
  options.busy = kRanks;
  measure_profile(testing::live_model(), world, options);
}

/// Ranks 0 and 1 measure; ranks 2 and 3 are busy. Both measuring ranks time a pass, so both start equally
/// often.
TEST(ProfilerFlush, OneRankFlushesAndItsGroupWaitsForIt) {
  CachedRanks world;
  measure(world, 2);
  const auto flushes = [&](int rank) {
    return world.deeds(rank).largest_buffer > static_cast<std::size_t>(kCache.count);
  };
  EXPECT_TRUE(flushes(0));
  for (int rank = 1; rank < 4; ++rank) EXPECT_FALSE(flushes(rank)) << rank;
  EXPECT_GT(world.deeds(0).begins, 0);
  EXPECT_EQ(world.deeds(1).begins, world.deeds(0).begins);
  for (int rank = 2; rank < 4; ++rank) EXPECT_EQ(world.deeds(rank).begins, 0) << rank;
}

TEST(ProfilerFlush, ARankWithoutAGroupDoesNotWait) {
  CachedRanks world;
  measure(world, 1);
  EXPECT_GT(world.deeds(0).largest_buffer, static_cast<std::size_t>(kCache.count));
  for (int rank = 1; rank < 4; ++rank) {
    EXPECT_LE(world.deeds(rank).largest_buffer, static_cast<std::size_t>(kCache.count)) << rank;
  }
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(world.deeds(rank).begins, 0) << rank;
}

}  // namespace flush_test
}  // namespace dflop
