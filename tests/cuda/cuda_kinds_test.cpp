// Runs the suites that every implementation must pass on one GPU, and tests its further guarantees.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "backend/cuda/gpu.hpp"
#include "backend/cuda/world.hpp"
#include "backend/host/world.hpp"
#include "core/error.hpp"
#include "core/support/clock.hpp"
#include "core/support/random.hpp"
#include "tests/backend/contract/executor.hpp"
#include "tests/backend/contract/fixtures.hpp"
#include "tests/backend/run/live_model.hpp"

namespace dflop::testing {
namespace cuda_kinds_test {

ExecutorKind cuda_executor() {
  return {"cuda", true, [](const Plan& plan, const ModelSpec& model) -> std::unique_ptr<Executor> {
            return std::make_unique<OwnWorldExecutor>(plan, model, make_cuda_world(plan.ranks()));
          }};
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceContract, ::testing::Values(device_kind("cuda")), KindName{});
INSTANTIATE_TEST_SUITE_P(Cuda, CommunicatorContract, ::testing::Values(communicator_kind("cuda")),
                         KindName{});
INSTANTIATE_TEST_SUITE_P(Cuda, ExecutorContract, ::testing::Values(cuda_executor()), ExecutorName{});

/// Memory of a buffer that is freed while its copy is still running is not reused before the copy ends. Each
/// of many copies has the buffer's content, although the next buffer takes its place.
TEST(CudaDevice, MemoryIsUsedAgainInTheOrderOfTheStream) {
  constexpr std::size_t kBytes = 8 << 20;
  constexpr int kTurns = 50;
  const auto device = make_cuda_device(std::make_shared<CudaGpu>(0), {});
  const auto stream = device->make_stream();
  const auto all = device->allocate(kBytes * kTurns);
  for (int turn = 0; turn < kTurns; ++turn) {
    const Data data(kBytes, static_cast<std::byte>(turn + 1));
    const auto buffer = device->allocate(kBytes);
    stream->copy_to_device(buffer->data(), data.data(), kBytes);
    stream->copy(static_cast<std::byte*>(all->data()) + kBytes * static_cast<std::size_t>(turn),
                 buffer->data(), kBytes);
  }
  const Data found = download(*stream, all->data(), all->bytes());
  for (int turn = 0; turn < kTurns; ++turn) {
    const auto begin = found.begin() + static_cast<std::ptrdiff_t>(kBytes) * turn;
    const Data expected(kBytes, static_cast<std::byte>(turn + 1));
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), begin)) << "turn " << turn;
  }
}

/// The same if a second stream of the rank reads the buffer.
TEST(CudaDevice, MemoryIsUsedAgainWhenFurtherStreamsHaveReadIt) {
  constexpr std::size_t kBytes = 8 << 20;
  constexpr int kTurns = 20;
  const auto device = make_cuda_device(std::make_shared<CudaGpu>(0), {});
  const auto writer = device->make_stream();
  const auto reader = device->make_stream();
  const auto written = device->make_event();
  const auto all = device->allocate(kBytes * kTurns);
  for (int turn = 0; turn < kTurns; ++turn) {
    const Data data(kBytes, static_cast<std::byte>(turn + 1));
    const auto buffer = device->allocate(kBytes);
    writer->copy_to_device(buffer->data(), data.data(), kBytes);
    writer->record(*written);
    reader->wait(*written);
    reader->copy(static_cast<std::byte*>(all->data()) + kBytes * static_cast<std::size_t>(turn),
                 buffer->data(), kBytes);
  }
  const Data found = download(*reader, all->data(), all->bytes());
  for (int turn = 0; turn < kTurns; ++turn) {
    ASSERT_EQ(found[kBytes * static_cast<std::size_t>(turn)], static_cast<std::byte>(turn + 1))
        << "turn " << turn;
  }
}

/// Copies more than fits in pinned memory, from memory that is overwritten at once.
TEST(CudaDevice, CopiedMemoryMayBeReused) {
  constexpr std::size_t kBytes = 40'000'001;
  const auto device = make_cuda_device(std::make_shared<CudaGpu>(0), {});
  const auto stream = device->make_stream();
  Random random(11);
  const Data data = random_data(kBytes, random);
  const auto first = device->allocate(kBytes);
  const auto second = device->allocate(kBytes);
  Data source = data;
  stream->copy_to_device(first->data(), source.data(), kBytes);
  std::fill(source.begin(), source.end(), std::byte{0});
  stream->copy_to_device(second->data(), source.data(), kBytes);
  EXPECT_TRUE(download(*stream, first->data(), kBytes) == data);
  EXPECT_TRUE(download(*stream, second->data(), kBytes) == source);
}

TEST(CudaDevice, OutOfMemoryErrorsSayHowMuchIsFree) {
  const auto device = make_cuda_device(std::make_shared<CudaGpu>(0), {5, {}, nullptr});
  constexpr std::int64_t kNeeded = std::int64_t{1} << 45;
  try {
    device->allocate(kNeeded);
    ADD_FAILURE() << "a GPU with 32 TiB";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.needed(), Bytes{kNeeded});
    EXPECT_GT(error.available(), Bytes{0});
    EXPECT_EQ(std::string(error.what()).rfind("rank 5 on " + device->name() + ": 32768.00 GiB", 0), 0U)
        << error.what();
  }
  EXPECT_EQ(device->in_use(), Bytes{0});
  EXPECT_EQ(device->allocate(512)->bytes(), 512U);  // the device is still usable
}

TEST(CudaDevice, StreamsTakeEventsOfGpusOnly) {
  const auto stream = make_cuda_device(std::make_shared<CudaGpu>(0), {})->make_stream();
  const auto host = make_host_device({})->make_event();
  EXPECT_THROW(stream->record(*host), Error);
  EXPECT_THROW(stream->wait(*host), Error);
  EXPECT_THROW(of_cuda(*make_host_device({})->make_stream()), Error);
}

TEST(CudaDevice, AHundredthGpuDoesNotExist) {
  try {
    CudaGpu gpu(99);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::no_device);
  }
}

/// Times start at the host's clock and stay within a millisecond of it in the first seconds.
TEST(CudaDevice, TimesBeginWithTheHostsClock) {
  const Nanoseconds before = host_time();
  const auto device = make_cuda_device(std::make_shared<CudaGpu>(0), {});
  const auto stream = device->make_stream();
  const auto event = device->make_event();
  stream->record(*event);
  stream->synchronize();
  const Nanoseconds after = host_time();
  EXPECT_GE(event->time() + Nanoseconds(1'000'000), before);
  EXPECT_LE(event->time() - Nanoseconds(1'000'000), after);
}

/// All-reduces over random values with odd sizes and offsets give every rank the exact bits of the host's
/// sum.
TEST(CudaWorld, SumsEqualTheHostsBits) {
  constexpr int kRanks = 5;
  const auto sums = [&](auto&& communicator_of, auto&& device_of, DType element, std::size_t count,
                        std::size_t shift) {
    std::vector<Data> found(kRanks);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        const auto device = device_of(rank);
        device->enter_thread();
        const auto communicator = communicator_of(rank);
        const auto stream = device->make_stream();
        Random random(100 + static_cast<std::uint64_t>(rank));
        std::vector<double> values(count + shift);
        for (double& value : values) value = (random.uniform() - 0.5) * 1000;
        const Data data = encode(element, values);
        const auto buffer = upload(*device, *stream, data);
        communicator->all_reduce(static_cast<std::byte*>(buffer->data()) + shift * bytes_of(element), count,
                                 element, {{3, 1, 4, 0, 2}}, *stream, "sum");
        found[static_cast<std::size_t>(rank)] = download(*stream, buffer->data(), data.size());
      });
    }
    threads.clear();
    for (Data& data : found)
      data.erase(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(shift * bytes_of(element)));
    return found;
  };
  for (const DType element : {DType::f32, DType::f64, DType::bf16}) {
    for (const std::size_t count : {1, 7, 8, 41, 1000, 100'003}) {
      for (const std::size_t shift : {0, 1}) {
        HostWorld host(kRanks, {kLong});
        const auto expected = sums([&](int rank) { return host.make_communicator(rank); },
                                   [](int rank) {
                                     return make_host_device({rank, {}});
                                   },
                                   element, count, shift);
        const auto world = make_cuda_world(kRanks);
        const auto found = sums([&](int rank) { return world->make_communicator(rank); },
                                [&](int rank) { return world->make_device(rank); }, element, count, shift);
        for (std::size_t rank = 0; rank < kRanks; ++rank) {
          EXPECT_TRUE(found[rank] == expected[rank])
              << to_string(element) << " x " << count << " from value " << shift << " on, rank " << rank;
        }
      }
    }
  }
}

TEST(CudaWorld, RejectsMoreRanksThanItCanAddUp) {
  try {
    make_cuda_world(65);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
  }
}

/// Each rank's stream copies on its own part of the GPU.
TEST(CudaWorld, RanksOnPartsOfTheGpu) {
  std::unique_ptr<World> world;
  try {
    world = make_cuda_world(2, {.timeout = kLong, .partition = true});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::no_device) throw;
    GTEST_SKIP() << error.what();
  }
  Random random(12);
  for (const int rank : {0, 1}) {
    const auto device = world->make_device(rank);
    const auto stream = device->make_stream();
    const Data data = random_data(100'000, random);
    const auto buffer = upload(*device, *stream, data);
    EXPECT_TRUE(download(*stream, buffer->data(), data.size()) == data) << "rank " << rank;
  }
}

}  // namespace cuda_kinds_test
}  // namespace dflop::testing
