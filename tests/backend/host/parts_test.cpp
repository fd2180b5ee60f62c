// Tests which cores of a host's devices a rank has, and when ranks take turns on them.
#include <gtest/gtest.h>
#ifdef __linux__
#include <sched.h>
#endif

#include <set>
#include <thread>

#include "backend/host/world.hpp"
#include "core/error.hpp"

namespace dflop {
namespace parts_test {

WorldOptions devices_of(int cores, int shared = 0, double share = 0) {
  WorldOptions options;
  options.device_cores = cores;
  options.shared_devices = shared;
  options.first_share = share;
  return options;
}

std::vector<std::string> parts(int ranks, const WorldOptions& options) {
  const HostWorld world(ranks, options);
  std::vector<std::string> all;
  for (int r = 0; r < ranks; ++r) all.push_back(world.part_of(r));
  return all;
}

/// A share of 0.3 is 1.2 of four cores, so the encoder gets one; 0.5 is two. Each module gets at least one.
TEST(HostParts, FollowTheShare) {
  using Parts = std::vector<std::string>;
  EXPECT_EQ(parts(2, devices_of(1)), (Parts{"1 core", "1 core"}));
  EXPECT_EQ(parts(2, devices_of(3)), (Parts{"3 cores", "3 cores"}));
  EXPECT_EQ(parts(2, devices_of(4, 1, 0.3)), (Parts{"1 core", "3 cores"}));
  EXPECT_EQ(parts(4, devices_of(4, 2, 0.5)), (Parts{"2 cores", "2 cores", "2 cores", "2 cores"}));
  EXPECT_EQ(parts(2, devices_of(2, 1, 0.99)), (Parts{"1 core", "1 core"}));
  EXPECT_EQ(parts(2, devices_of(4, 1, 0.99)), (Parts{"3 cores", "1 core"}));
}

TEST(HostParts, NeedAWholeNumberOfDevices) {
  for (const WorldOptions& options : {devices_of(0), devices_of(1, 1, 0.5), devices_of(2, 2, 0.5)}) {
    EXPECT_THROW(HostWorld(2, options), Error);
  }
  EXPECT_THROW(HostWorld(3, devices_of(2, 1, 0.5)), Error);
  EXPECT_EQ(HostWorld(2, devices_of(4, 1, 0.5)).quanta(), 4);
  EXPECT_EQ(HostWorld(2, devices_of(4, 1, 0.5)).shared_devices(), 1);
  EXPECT_EQ(HostWorld(2).quanta(), 1);
}

/// A rank uses all cores of its device, so with five cores two devices of two cores compute at a time. If all
/// can compute at the same time, there are no turns, and ranks that share devices have their own cores.
TEST(HostParts, TurnsArePerDevice) {
  const auto turns = [](int ranks, WorldOptions options, int cores) {
    options.cores = cores;
    HostWorld world(ranks, options);
    return std::pair(world.cores(), world.make_turn(0, {{0}}) != nullptr);
  };
  EXPECT_EQ(turns(4, devices_of(2), 5), std::pair(2, true));
  EXPECT_EQ(turns(4, devices_of(2), 8), std::pair(4, false));
  EXPECT_EQ(turns(4, devices_of(2), 1), std::pair(1, true));
  EXPECT_EQ(turns(4, devices_of(2), 0), std::pair(0, false));
  EXPECT_EQ(turns(4, devices_of(2, 2, 0.5), 1), std::pair(0, false));
}

#ifdef __linux__
/// Returns the processors that the rank's main thread may use.
std::set<int> processors_of(World& world, int rank) {
  const std::unique_ptr<Device> device = world.make_device(rank);
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::jthread([&] {
    device->enter_thread();
    ::sched_getaffinity(0, sizeof(allowed), &allowed);
  }).join();
  std::set<int> processors;
  for (int p = 0; p < CPU_SETSIZE; ++p) {
    if (CPU_ISSET(p, &allowed) != 0) processors.insert(p);
  }
  return processors;
}

/// Two ranks that share a device of two cores are pinned to one processor each. Without these options they
/// are not pinned.
TEST(HostParts, ArePinnedToDisjointProcessors) {
  const auto all = static_cast<int>(usable_processors().size());
  if (all < 2) GTEST_SKIP() << "this takes two processors";
  WorldOptions options = devices_of(2, 1, 0.5);
  options.cores = all;
  HostWorld world(2, options);
  const std::set<int> encoder = processors_of(world, 0);
  const std::set<int> llm = processors_of(world, 1);
  EXPECT_EQ(encoder.size(), 1U);
  EXPECT_EQ(llm.size(), 1U);
  EXPECT_NE(encoder, llm);
  HostWorld many(2 * all, devices_of(2));
  EXPECT_EQ(processors_of(many, 0).size(), static_cast<std::size_t>(all));
}
#endif

}  // namespace parts_test
}  // namespace dflop
