// Tests the guarantees that the host's communicators give and others do not: exact messages, sums in the
// group's order, and sends that do not wait.
#include "backend/host/world.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <limits>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "core/dtype.hpp"

namespace dflop {
namespace world_test {

constexpr Seconds kLong{60};

/// Calls body(rank, communicator, stream) in a thread for each rank. Returns the message of the Error that
/// ended each rank, "aborted: ..." for ranks that were aborted because of another's Error.
using Body = std::function<void(int, Communicator&, DeviceStream&)>;
std::vector<std::string> run(int ranks, Seconds timeout, const Body& body) {
  HostWorld world(ranks, {timeout});
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&world, &body, rank, &error = errors[static_cast<std::size_t>(rank)]] {
      const auto communicator = world.make_communicator(rank);
      const auto stream = make_host_device({})->make_stream();
      try {
        body(rank, *communicator, *stream);
      } catch (const Aborted& aborted) {
        error = "aborted: " + aborted.message();
      } catch (const Error& failure) {
        error = failure.message();
      }
    });
  }
  threads.clear();
  return errors;
}

using Messages = std::vector<std::string>;

TEST(HostWorld, NamesBothSidesIfMessageSizesDiffer) {
  const std::string expected =
      "rank 1 receives gradients of microbatch 2 (4 bytes), but rank 0 sent activations of microbatch 3 (8 "
      "bytes); messages between two ranks must be received in the order in which they were sent";
  const Messages errors = run(3, kLong, [](int rank, Communicator& communicator, DeviceStream& stream) {
    std::array<float, 2> data{};
    if (rank == 0) communicator.send(data.data(), 8, 1, stream, "activations of microbatch 3");
    if (rank == 1) communicator.receive(data.data(), 4, 0, stream, "gradients of microbatch 2");
    if (rank == 2) communicator.receive(data.data(), 4, 0, stream, "what never comes");
  });
  EXPECT_EQ(errors, (Messages{"", expected, "aborted: " + expected}));
}

/// The rank that arrives second finds the mismatch; this can be either rank.
TEST(HostWorld, NamesBothSidesIfCollectivesDiffer) {
  struct Case {
    DType element;
    std::size_t count;
    bool gather;
    std::string words;
  };
  for (const Case& b : {Case{DType::f32, 3, false, "all-reduce of b (3 f32)"},
                        Case{DType::f64, 2, false, "all-reduce of b (2 f64)"},
                        Case{DType::f32, 2, true, "all-gather of b (2 f32)"}}) {
    const Messages errors = run(2, kLong, [&](int rank, Communicator& communicator, DeviceStream& stream) {
      std::array<double, 8> data{};
      std::array<double, 8> all{};
      const RankGroup group{{0, 1}};
      if (rank == 0) {
        communicator.all_reduce(data.data(), 2, DType::f32, group, stream, "a");
      } else if (b.gather) {
        communicator.all_gather(all.data(), data.data(), b.count, b.element, group, stream, "b");
      } else {
        communicator.all_reduce(data.data(), b.count, b.element, group, stream, "b");
      }
    });
    const std::string rule = "; all ranks of a group must enter the same collectives in the same order";
    const std::string a = "all-reduce of a (2 f32)";
    const std::string second_is_1 = "rank 1 enters " + b.words + ", but rank 0 waits in " + a + rule;
    const std::string second_is_0 = "rank 0 enters " + a + ", but rank 1 waits in " + b.words + rule;
    if (errors[1] == second_is_1) {
      EXPECT_EQ(errors[0], "aborted: " + second_is_1);
    } else {
      EXPECT_EQ(errors, (Messages{second_is_0, "aborted: " + second_is_0}));
    }
  }
}

TEST(HostWorld, ATimeoutReportsTheWaitOfEveryRank) {
  HostWorld world(5, {Seconds(1)});
  world.make_communicator(0).reset();
  const auto idle = world.make_communicator(1);
  const auto receiver = world.make_communicator(2);
  const auto reducer = world.make_communicator(3);
  const auto device = make_host_device({});
  const auto stream = device->make_stream();
  const auto reducers_stream = device->make_stream();
  float activation = 0;
  float gradient = 0;
  std::string heard;  // message of the error or of the abort, which are the same
  {
    const std::jthread other([&] {
      EXPECT_THROW(reducer->all_reduce(&gradient, 1, DType::f32, {{4, 3, 2}}, *reducers_stream,
                                       "gradients of stage 1"),
                   Error);
    });
    try {
      receiver->receive(&activation, 4, 0, *stream, "activations of microbatch 3 to llm 1");
    } catch (const Error& error) {
      heard = error.message();
    }
  }
  ASSERT_NE(heard, "");

  const std::string lines = heard.substr(heard.find('\n'));
  EXPECT_EQ(std::regex_replace(lines, std::regex(R"(\([0-9.]+ s\))"), "(T)"),
            "\n  rank 0 has ended\n  rank 1 is not waiting\n  rank 2 waits for activations of microbatch 3 "
            "to llm 1 from rank 0 (T)\n  rank 3 waits for all-reduce of gradients of stage 1 (1 f32), which "
            "these ranks have not joined: 4, 2 (T)\n  rank 4 has not begun");
  EXPECT_TRUE(std::regex_search(heard, std::regex(R"(^rank [23] waited for longer than 1\.00 s:)"))) << heard;
}

/// 2^24 + 1 rounds to 2^24 in f32, so ((2^24 + 1) + 1) - 2^24 = 0, while ((1 + 1) + 2^24) - 2^24 = 2; and
/// 2^53 likewise in f64. In bf16 256 + 1 = 257 would round to 256 at once; in f32 ((256 + 1) + 1) = 258,
/// which bf16 holds.
TEST(HostWorld, AddsInTheOrderOfTheGroup) {
  const std::vector<float> f32 = {0x1p24F, 1, 1, -0x1p24F};
  const std::vector<double> f64 = {0x1p53, 1, 1, -0x1p53};
  const std::vector<float> bf16 = {256, 1, 1, 0};
  const RankGroup forward{{0, 1, 2, 3}};
  const RankGroup small_first{{1, 2, 0, 3}};
  const Messages errors = run(4, kLong, [&](int rank, Communicator& communicator, DeviceStream& stream) {
    const auto r = static_cast<std::size_t>(rank);
    std::array<float, 2> single = {f32[r], f32[r]};
    communicator.all_reduce(single.data(), 1, DType::f32, forward, stream, "sum");
    communicator.all_reduce(single.data() + 1, 1, DType::f32, small_first, stream, "sum");
    EXPECT_EQ(single, (std::array<float, 2>{0, 2}));
    std::array<double, 2> twice = {f64[r], f64[r]};
    communicator.all_reduce(twice.data(), 1, DType::f64, forward, stream, "sum");
    communicator.all_reduce(twice.data() + 1, 1, DType::f64, small_first, stream, "sum");
    EXPECT_EQ(twice, (std::array<double, 2>{0, 2}));
    BFloat16 half = to_bfloat16(bf16[r]);
    communicator.all_reduce(&half, 1, DType::bf16, forward, stream, "sum");
    EXPECT_EQ(to_float(half), 258);
  });
  EXPECT_EQ(errors, Messages(4));
}

TEST(HostWorld, GroupsInDifferentOrdersDoNotMatch) {
  const Messages errors =
      run(2, Seconds(0.1), [](int rank, Communicator& communicator, DeviceStream& stream) {
        float value = 1;
        communicator.all_reduce(&value, 1, DType::f32, {{rank, 1 - rank}}, stream, "sum");
      });
  EXPECT_NE(errors[0], "");
  EXPECT_NE(errors[1], "");
}

/// One thread acts as two ranks. It would deadlock if sends waited for their receivers.
TEST(HostWorld, SendsDoNotWait) {
  HostWorld world(2, {kLong});
  const auto source = world.make_communicator(0);
  const auto destination = world.make_communicator(1);
  const auto device = make_host_device({});
  const auto stream = device->make_stream();
  const auto before = device->make_event();
  const auto after = device->make_event();
  stream->record(*before);
  for (int i = 0; i < 100; ++i) source->send(&i, sizeof i, 1, *stream, "number");
  stream->record(*after);
  for (int i = 0; i < 100; ++i) {
    int received = -1;
    destination->receive(&received, sizeof received, 0, *stream, "number");
    EXPECT_EQ(received, i);
    // The message arrived when it was sent, not when it was received.
    EXPECT_GE(destination->last_arrival(), before->time());
    EXPECT_LE(destination->last_arrival(), after->time());
  }
}

TEST(HostWorld, ACollectiveArrivesWhenItsLastRankComes) {
  std::array<Nanoseconds, 3> entered{};
  std::array<Nanoseconds, 3> arrived{};
  const Messages errors = run(3, kLong, [&](int rank, Communicator& communicator, DeviceStream& stream) {
    const auto r = static_cast<std::size_t>(rank);
    const auto event = make_host_device({})->make_event();
    float value = 1;
    stream.record(*event);
    entered[r] = event->time();
    communicator.all_reduce(&value, 1, DType::f32, {{0, 1, 2}}, stream, "sum");
    arrived[r] = communicator.last_arrival();
  });
  EXPECT_EQ(errors, Messages(3));
  EXPECT_EQ(arrived[0], arrived[1]);
  EXPECT_EQ(arrived[0], arrived[2]);
  EXPECT_GE(arrived[0], *std::max_element(entered.begin(), entered.end()));
}

/// Once all ranks have met in a collective, all finish it, even if the run is aborted meanwhile: a rank that
/// left early would free memory that the others use. The time of the abort depends on the threads.
TEST(HostWorld, AnAbortLeavesNoCollectiveHalfDone) {
  for (int repetition = 0; repetition < 300; ++repetition) {
    std::array<int, 2> done{};
    std::atomic<bool> begun = false;
    const Messages errors =
        run(3, Seconds(300), [&](int rank, Communicator& communicator, DeviceStream& stream) {
          if (rank == 2) {
            while (!begun) std::this_thread::yield();
            communicator.abort("enough");
            return;
          }
          for (;;) {
            float value = 1;
            communicator.all_reduce(&value, 1, DType::f32, {{0, 1}}, stream, "sum");
            EXPECT_EQ(value, 2);
            ++done[static_cast<std::size_t>(rank)];
            begun = true;
          }
        });
    const std::string heard = "aborted: rank 2 ended the run: enough";
    ASSERT_EQ(errors, (Messages{heard, heard, ""}));
    ASSERT_EQ(done[0], done[1]);
  }
}

TEST(HostWorld, GivesEachRankOneCommunicator) {
  HostWorld world(2, {kLong});
  EXPECT_THROW(world.make_communicator(-1), Error);
  EXPECT_THROW(world.make_communicator(2), Error);
  const auto first = world.make_communicator(0);
  EXPECT_THROW(world.make_communicator(0), Error);
  world.make_communicator(1).reset();
  EXPECT_THROW(world.make_communicator(1), Error);  // the world has ended
}

TEST(HostWorld, RejectsARunWithoutRanksOrTime) {
  EXPECT_THROW(HostWorld(0, {kLong}), Error);
  EXPECT_THROW(HostWorld(1, {Seconds(0)}), Error);
  EXPECT_THROW(HostWorld(1, {Seconds(-1)}), Error);
  EXPECT_THROW(HostWorld(1, {Seconds(std::numeric_limits<double>::quiet_NaN())}), Error);
  EXPECT_THROW(HostWorld(1, {Seconds(std::numeric_limits<double>::infinity())}), Error);
}

}  // namespace world_test
}  // namespace dflop
