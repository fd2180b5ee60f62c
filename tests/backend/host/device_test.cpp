// Tests the guarantees that the host gives and other devices do not.
#include <gtest/gtest.h>
#include <sched.h>

#include <string>
#include <thread>
#include <vector>

#include "backend/host/machine.hpp"
#include "backend/host/world.hpp"
#include "core/error.hpp"

namespace dflop {
namespace host_device_test {

TEST(HostDevice, NamesTheRankWithoutMemory) {
  const auto device = make_host_device({3, Bytes{std::int64_t{1} << 30}});
  const auto held = device->allocate(std::size_t{768} << 20);  // 0.75 of 1 GiB
  try {
    device->allocate(std::size_t{512} << 20);
    ADD_FAILURE() << "no error";
  } catch (const OutOfMemory& error) {
    EXPECT_STREQ(error.what(),
                 "rank 3 on host: 0.50 GiB more are needed, 0.25 GiB are left; its limit is 1.00 GiB");
  }
}

TEST(HostDevice, CountsTheRequestedBytes) {
  const auto device = make_host_device({});
  const auto one = device->allocate(1);
  const auto nothing = device->allocate(0);
  EXPECT_EQ(device->in_use(), Bytes{1});
}

TEST(HostDevice, BuffersMayOutliveIt) {
  auto device = make_host_device({0, Bytes{100}});
  const auto buffer = device->allocate(100);
  device.reset();
  static_cast<char*>(buffer->data())[99] = 'x';
  EXPECT_EQ(buffer->bytes(), 100U);
}

/// Times recorded before a thread starts are earlier than the thread's, and these are earlier than times
/// after its end.
TEST(HostDevice, AllRanksShareOneClock) {
  const auto record = [] {
    const auto device = make_host_device({});
    const auto event = device->make_event();
    device->make_stream()->record(*event);
    return event->time();
  };
  for (int turn = 0; turn < 20; ++turn) {
    const Nanoseconds before = record();
    Nanoseconds within{};
    std::thread([&] { within = record(); }).join();
    EXPECT_LE(before, within);
    EXPECT_LE(within, record());
  }
}

class ForeignEvent final : public DeviceEvent {
 public:
  Nanoseconds time() override { return Nanoseconds(0); }
};

TEST(HostDevice, RejectsEventsOfAnotherDevice) {
  const auto stream = make_host_device({})->make_stream();
  ForeignEvent event;
  EXPECT_THROW(stream->record(event), Error);
  EXPECT_THROW(stream->wait(event), Error);
}

#ifdef __linux__
/// Returns how many processors a thread may use after it has entered the device.
int processors_of_a_thread(Device& device) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  std::jthread([&] {
    device.enter_thread();
    ::sched_getaffinity(0, sizeof(cores), &cores);
  }).join();
  return CPU_COUNT(&cores);
}

/// Eight processors on four cores, numbered in two ways, and a subset of them.
TEST(HostDevice, UsesEachCoreBeforeSecondThreads) {
  const std::vector<int> all = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(cores_first(all, [](int p) { return p / 2 * 2; }), (std::vector<int>{0, 2, 4, 6, 1, 3, 5, 7}));
  EXPECT_EQ(cores_first(all, [](int p) { return p % 4; }), all);
  EXPECT_EQ(cores_first({1, 5, 6}, [](int p) { return p % 4; }), (std::vector<int>{1, 6, 5}));
}

/// Returns how many processors a thread of rank 1 may use.
int processors_of_rank_1(int ranks, int cores) {
  return processors_of_a_thread(*HostWorld(ranks, {Seconds{1}, {}, cores}).make_device(1));
}

/// A core that the machine does not have is ignored.
TEST(HostDevice, ThreadsArePinnedToItsProcessor) {
  const std::vector<int> all = usable_processors();
  HostDeviceOptions options;
  EXPECT_EQ(processors_of_a_thread(*make_host_device(options)), static_cast<int>(all.size()));
  options.processor = all.back();
  EXPECT_EQ(processors_of_a_thread(*make_host_device(options)), 1);
  options.processor = CPU_SETSIZE - 1;
  EXPECT_EQ(processors_of_a_thread(*make_host_device(options)), static_cast<int>(all.size()));
}

/// Ranks that need most of the processors are pinned to theirs, if they do not take turns.
TEST(HostWorld, RanksArePinnedToProcessors) {
  const auto all = static_cast<int>(usable_processors().size());
  if (all < 2) GTEST_SKIP() << "this takes two processors";
  EXPECT_EQ(processors_of_rank_1(all, all), 1);
  EXPECT_EQ(processors_of_rank_1(all, 2 * all), 1);
  EXPECT_EQ(processors_of_rank_1(all, 0), all);
  EXPECT_EQ(processors_of_rank_1(all, all - 1), all);
  EXPECT_EQ(processors_of_rank_1(all + 1, 2 * all), all);
  EXPECT_EQ(processors_of_rank_1(2, 2), all <= 3 ? 1 : all);
}
#endif

}  // namespace host_device_test
}  // namespace dflop
