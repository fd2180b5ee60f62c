// The profiler on devices that launch kernels: which points it measures, and what it reports about the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/host/world.hpp"
#include "backend/profile/profiler.hpp"
#include "tests/backend/forwarding.hpp"
#include "tests/backend/run/live_model.hpp"

namespace dflop {
namespace launching_test {

class LaunchingDevice final : public testing::ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  bool is_synchronous() const override { return false; }
};

class LaunchingRanks final : public World {
 public:
  std::string device_name() const override { return "a GPU"; }
  int ranks() const override { return host_->ranks(); }
  std::vector<int> local_ranks() const override { return host_->local_ranks(); }
  std::unique_ptr<Device> make_device(int rank) override {
    return std::make_unique<LaunchingDevice>(host_->make_device(rank));
  }
  std::unique_ptr<Communicator> make_communicator(int rank) override {
    return host_->make_communicator(rank);
  }

 private:
  std::unique_ptr<World> host_ = std::make_unique<HostWorld>(2);
};

ProfileTables measured(World& world, Seconds budget) {
  ProfilerOptions options;
  options.budget = budget;
  options.llm = {600, 80};
  options.encoder = PointRange{100, 50};
  return measure_profile(testing::live_model(), world, options);
}

std::vector<std::int64_t> tokens_of(const ProfileTables& profile, ProfileUnit unit) {
  std::vector<std::int64_t> tokens;
  for (const ProfilePoint& point : profile.tp.at(0).of(unit)) tokens.push_back(point.tokens);
  return tokens;
}

std::vector<std::pair<std::int64_t, std::int64_t>> attention_of(const ProfileTables& profile,
                                                                ProfileUnit unit) {
  std::vector<std::pair<std::int64_t, std::int64_t>> points;
  for (const ProfilePoint& point : profile.tp.at(0).of(unit)) points.emplace_back(point.length, point.tokens);
  return points;
}

using Points = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// Points double from 16 on; the last is the max in multiples of 16: 608 and 112. Attention has points at 256
/// tokens and at the max, in whole sequences: 3 of 80 are 240, 7 of 80 are 560.
TEST(ProfilerOfLaunches, MeasuresUpToTheMaxOfEachModule) {
  LaunchingRanks world;
  const ProfileTables profile = measured(world, Seconds(20));
  EXPECT_TRUE(launches_kernels(profile));
  EXPECT_EQ(tokens_of(profile, ProfileUnit::llm_linear),
            (std::vector<std::int64_t>{16, 32, 64, 128, 256, 512, 608}));
  EXPECT_EQ(tokens_of(profile, ProfileUnit::encoder_linear), (std::vector<std::int64_t>{16, 32, 64, 112}));
  EXPECT_EQ(attention_of(profile, ProfileUnit::llm_attention),
            (Points{{16, 256}, {16, 592}, {32, 256}, {32, 576}, {64, 256}, {64, 576}, {80, 240}, {80, 560}}));
  // 256 tokens, although the encoder's max is 100; in sequences of 50 they are 250.
  EXPECT_EQ(attention_of(profile, ProfileUnit::encoder_attention), (Points{{16, 256}, {32, 256}, {50, 250}}));
  for (const ProfilePoint& point : profile.tp[0].of(ProfileUnit::patches)) {
    ASSERT_TRUE(point.host_s.has_value());
    EXPECT_LE(*point.host_s, point.forward_s);
    EXPECT_GT(*point.host_s, 0);
  }
  for (const ProfilePoint& point : profile.tp[0].of(ProfileUnit::llm_linear)) EXPECT_FALSE(point.host_s);
  EXPECT_GT(profile.norm.at(1e6), 0);
}

/// With almost no time, the largest and the smallest point of each unit are measured.
TEST(ProfilerOfLaunches, MeasuresTheLargestPointsFirst) {
  LaunchingRanks world;
  const ProfileTables profile = measured(world, Seconds(1e-3));
  EXPECT_EQ(tokens_of(profile, ProfileUnit::llm_linear), (std::vector<std::int64_t>{16, 608}));
  EXPECT_EQ(attention_of(profile, ProfileUnit::llm_attention), (Points{{16, 256}, {80, 560}}));
}

/// The host device has no launches, so its times have no separate host part.
TEST(ProfilerOfLaunches, DoesNotSplitTimesOfHosts) {
  HostWorld world(2);
  const ProfileTables profile = measured(world, Seconds(20));
  EXPECT_FALSE(launches_kernels(profile));
  EXPECT_EQ(attention_of(profile, ProfileUnit::llm_attention),
            (Points{{16, 256}, {32, 256}, {64, 256}, {80, 240}}));
  for (const ProfilePoint& point : profile.tp[0].of(ProfileUnit::patches)) EXPECT_FALSE(point.host_s);
}

}  // namespace launching_test
}  // namespace dflop
