// Tests the NCCL communicator beyond the contract: its NCCL calls, that sends do not wait, and how ranks with
// blocked streams end.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <latch>
#include <mutex>
#include <thread>

#include "tests/backend/async_device.hpp"
#include "tests/backend/contract/fixtures.hpp"
#include "tests/backend/count_down.hpp"
#include "tests/backend/nccl/fake.hpp"
#include "tests/backend/process/free_port.hpp"

namespace dflop::testing {
namespace communicator_test {

using Strings = std::vector<std::string>;

const std::vector<RankRoute> kBothWays = {{0, 1}, {1, 0}};

/// A rank with access to all streams of its device.
struct NcclSide : RankSide {
  AsyncGpu& gpu;
};

/// The body of each of the two ranks, called with its rendezvous.
using Body = std::function<void(const NcclSide&, Rendezvous&)>;

/// Waits until the device is idle, at most a minute.
void await_idle(const NcclSide& side, Rendezvous& rendezvous) {
  for (int k = 0; k < 60'000 && !side.gpu.is_idle(); ++k) {
    rendezvous.check();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(side.gpu.is_idle());
}

/// Changes the seam of rank 0.
using SeamChange = std::function<void(NcclSeam&)>;

RankEnd run_rank(int rank, int port, Seconds timeout, const Body& body, const SeamChange& change) {
  try {
    Rendezvous rendezvous({"127.0.0.1", port, rank, 2, Seconds{60}, timeout});
    const auto gpu = std::make_shared<AsyncGpu>();
    AsyncDevice device(rank, false, gpu);
    NcclSeam seam = fake_seam(rank, gpu);
    if (rank == 0 && change) change(seam);
    const auto communicator = make_nccl_communicator(fake_nccl(), rendezvous, std::move(seam));
    const auto stream = device.make_stream();
    body({{rank, *communicator, device, *stream}, *gpu}, rendezvous);
    return {};
  } catch (const Aborted& aborted) {
    return {How::aborted, aborted.message()};
  } catch (const Error& error) {
    return {How::error, error.message()};
  }
}

std::vector<RankEnd> run_two(const Body& body, Seconds timeout = Seconds{300},
                             const SeamChange& change = nullptr) {
  forget_fake_nccl_calls();
  const int port = free_port();
  std::vector<RankEnd> ends(2);
  {
    std::jthread first([&] { ends[0] = run_rank(0, port, timeout, body, change); });
    std::jthread second([&] { ends[1] = run_rank(1, port, timeout, body, change); });
  }
  EXPECT_EQ(fake_nccl_faults(), Strings{});
  return ends;
}

void expect_done(const std::vector<RankEnd>& ends) {
  for (const RankEnd& end : ends) EXPECT_EQ(end.how, How::done) << end.message;
}

/// Both ranks send everything before they receive anything, as pipelines may. NCCL's sends block their stream
/// until they are received, so this ends only if that stream is neither the caller's nor the stream of the
/// receives.
TEST(NcclCommunicator, SendsOnConnectedRoutesDoNotWait) {
  constexpr int kLetters = 20;
  std::latch all_sent(2);
  expect_done(run_two([&](const RankSide& side, Rendezvous&) {
    CountDown sent(all_sent);
    side.communicator.connect(kBothWays);
    const int peer = 1 - side.rank;
    for (int i = 0; i < kLetters; ++i) {
      side.send(Data(1000, static_cast<std::byte>(i)), peer, "letter");  // synchronizes and frees the memory
    }
    sent.now();
    all_sent.wait();
    for (int i = 0; i < kLetters; ++i) {
      EXPECT_EQ(side.receive(1000, peer, "letter"), Data(1000, static_cast<std::byte>(i))) << i;
    }
  }));
}

/// Rank 0 waits until its device is idle before rank 1 reaches its receives. The second receive has no bytes.
TEST(NcclCommunicator, SendsEndWhenTheirReceivesArePosted) {
  std::latch sent(2);
  expect_done(run_two([&](const NcclSide& side, Rendezvous& rendezvous) {
    CountDown has_sent(sent);
    side.communicator.connect(kBothWays);
    EXPECT_TRUE(side.communicator.posts_receives());
    if (side.rank == 0) {
      side.send(Data(24, std::byte{5}), 1, "a letter");
      side.send(Data(0), 1, "an empty letter");
      await_idle(side, rendezvous);
      return;
    }
    const auto buffer = side.device.allocate(24);
    side.communicator.post_receive(buffer->data(), 24, 0, side.stream, "a letter");
    side.communicator.post_receive(buffer->data(), 0, 0, side.stream, "an empty letter");
    has_sent.now();
    sent.wait();
    side.communicator.receive(buffer->data(), 24, 0, side.stream, "a letter");
    side.communicator.receive(buffer->data(), 0, 0, side.stream, "an empty letter");
    EXPECT_EQ(download(side.stream, buffer->data(), 24), Data(24, std::byte{5}));
  }));
}

TEST(NcclCommunicator, AReceiveMustMatchItsPost) {
  const auto ends = run_two([&](const NcclSide& side, Rendezvous& rendezvous) {
    side.communicator.connect({{0, 1}});
    if (side.rank == 0) return side.send(Data(24), 1, "a letter");
    const auto buffer = side.device.allocate(24);
    side.communicator.post_receive(buffer->data(), 24, 0, side.stream, "a letter");
    await_idle(side, rendezvous);  // otherwise the letter could arrive in freed memory
    side.communicator.receive(buffer->data(), 8, 0, side.stream, "a letter");
  });
  EXPECT_EQ(ends[1].how, How::error);
  EXPECT_EQ(
      ends[1].message,
      "a letter from rank 0: the receive was posted for 24 bytes of other memory, expected those of the "
      "call, 8");
}

TEST(NcclCommunicator, ARouteIsConnectedOnce) {
  expect_done(run_two([&](const RankSide& side, Rendezvous&) {
    for (int i = 0; i < 3; ++i) side.communicator.connect(kBothWays);
  }));
  EXPECT_EQ(fake_nccl_calls().size(), 4u);  // a first message in each direction, at both ends
}

TEST(NcclCommunicator, MakesTheExpectedNcclCalls) {
  expect_done(run_two([&](const RankSide& side, Rendezvous&) {
    if (side.rank == 0) {
      side.send(Data(24), 1, "a letter");
      side.send(Data(0), 1, "an empty letter");  // sent as one byte, so that the receiver can wait for it
    } else {
      side.receive(24, 0, "a letter");
      side.receive(0, 0, "an empty letter");
    }
    const RankGroup group{{1, 0}};
    side.all_reduce(Data(24), DType::f32, group, "sum");      // 6 values
    side.all_reduce(Data(24), DType::f64, group, "sum");      // 3
    side.all_gather(Data(8), DType::bf16, group, "parts");    // 4 of each rank
    side.reduce_scatter(Data(16), DType::f32, group, "sum");  // 4 values, 2 for each rank
  }));
  Strings of_rank_0;  // rank 0 is the second of the group, and the source of its route
  Strings of_rank_1;
  for (const std::string& call : fake_nccl_calls()) {
    const bool message = call.rfind("send", 0) == 0 || call.rfind("recv", 0) == 0;
    const bool second = call.find("as 1 of 2") != std::string::npos;
    (message == second ? of_rank_1 : of_rank_0).push_back(call);
  }
  const std::string f32 = std::to_string(ncclFloat32);
  const std::string f64 = std::to_string(ncclFloat64);
  const std::string bf16 = std::to_string(ncclBfloat16);
  EXPECT_EQ(
      of_rank_0,
      (Strings{"send 24 as 0 of 2", "send 1 as 0 of 2", "all_reduce 6 of type " + f32 + " as 1 of 2",
               "all_reduce 3 of type " + f64 + " as 1 of 2", "all_gather 4 of type " + bf16 + " as 1 of 2",
               "reduce_scatter 2 of type " + f32 + " as 1 of 2"}));
  EXPECT_EQ(
      of_rank_1,
      (Strings{"recv 24 as 1 of 2", "recv 1 as 1 of 2", "all_reduce 6 of type " + f32 + " as 0 of 2",
               "all_reduce 3 of type " + f64 + " as 0 of 2", "all_gather 4 of type " + bf16 + " as 0 of 2",
               "reduce_scatter 2 of type " + f32 + " as 0 of 2"}));
}

/// The host has entered all work and waits for its stream, which waits for a rank that is gone.
TEST(NcclCommunicator, AStreamIsFreedWhenItsPeerIsGone) {
  const auto ends = run_two([&](const RankSide& side, Rendezvous& rendezvous) {
    side.communicator.connect(kBothWays);
    side.all_reduce(Data(4), DType::f32, {{0, 1}}, "a first sum");
    if (side.rank == 1) {
      rendezvous.abort("killed");
      return;
    }
    const auto buffer = side.device.allocate(8);
    side.communicator.receive(buffer->data(), 8, 1, side.stream, "activations");
    side.communicator.all_reduce(buffer->data(), 2, DType::f32, {{0, 1}}, side.stream, "sum");
    side.stream.synchronize();
    side.communicator.receive(buffer->data(), 8, 1, side.stream, "activations");
  });
  EXPECT_EQ(ends[0].how, How::aborted);
  EXPECT_EQ(ends[0].message, "rank 1 ended the run: killed");
  EXPECT_EQ(ends[1].how, How::done);
}

/// As above, but the work of the communicator that was made first is queued after the work of the other one,
/// whose kernels end only when it is aborted. Aborting only the first one would wait forever.
TEST(NcclCommunicator, AStreamIsFreedIfACommunicatorWaitsForALaterOne) {
  std::latch entered(2);
  const auto ends = run_two([&](const RankSide& side, Rendezvous& rendezvous) {
    CountDown has_entered(entered);
    side.all_reduce(Data(4), DType::f32, {{0, 1}}, "a first sum");
    side.communicator.connect({{1, 0}});
    if (side.rank == 1) {
      has_entered.now();
      entered.wait();
      rendezvous.abort("killed");
      return;
    }
    const auto buffer = side.device.allocate(8);
    side.communicator.receive(buffer->data(), 8, 1, side.stream, "activations");
    side.communicator.all_reduce(buffer->data(), 2, DType::f32, {{0, 1}}, side.stream, "sum");
    has_entered.now();
    side.stream.synchronize();
    side.communicator.receive(buffer->data(), 8, 1, side.stream, "activations");
  });
  EXPECT_EQ(ends[0].how, How::aborted);
  EXPECT_EQ(ends[0].message, "rank 1 ended the run: killed");
  EXPECT_EQ(ends[1].how, How::done);
}

/// Waits until this rank knows of the run's end, a moment after the other rank; at most a minute.
void await_end(Rendezvous& rendezvous) {
  for (int k = 0; k < 60'000; ++k) {
    rendezvous.check();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(NcclCommunicator, ABlockedStreamTimesOutWithAReport) {
  const auto ends = run_two(
      [&](const RankSide& side, Rendezvous& rendezvous) {
        side.communicator.connect(kBothWays);
        if (side.rank == 0) {
          const auto buffer = side.device.allocate(8);
          side.communicator.receive(buffer->data(), 8, 1, side.stream, "activations of microbatch 3");
          side.stream.synchronize();  // not a wait in a call of the communicator
        }
        await_end(rendezvous);
      },
      Seconds{5});  // includes the time to connect
  EXPECT_EQ(ends[0].how, How::error);
  EXPECT_EQ(ends[1].how, How::aborted);
  for (const RankEnd& end : ends) {
    for (const char* part : {"rank 0 waited for longer than 5.00 s", "rank 1 is not waiting",
                             "rank 0 waits for activations of microbatch 3 from rank 1 ("}) {
      EXPECT_NE(end.message.find(part), std::string::npos) << part << " is not in " << end.message;
    }
  }
}

/// A device that does not answer queries while it is closed, like a device that loads code while it has work
/// that cannot end.
class ClosedDevice {
 public:
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  /// Answers queries again, and releases await_question().
  void open() {
    const std::lock_guard lock(mutex_);
    closed_ = false;
    asked_ = true;
    changed_.notify_all();
  }
  /// Waits until a thread waits for an answer.
  void await_question() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return asked_; });
  }
  SeamChange change() {
    return [this](NcclSeam& seam) {
      seam.reached = [this, reached = seam.reached](DeviceEvent& event) {
        std::unique_lock lock(mutex_);
        if (closed_) asked_ = true;
        changed_.notify_all();
        changed_.wait(lock, [&] { return !closed_; });
        return reached(event);
      };
    };
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  bool asked_ = false;
};

/// An OpenAtEnd opens a device when its rank ends, also by an exception. Otherwise threads that query it
/// could not end.
struct OpenAtEnd {
  ClosedDevice& device;
  ~OpenAtEnd() { device.open(); }
};

/// Rank 0 enters a receive, and its device stops answering. Rank 1 ends the run once rank 0's watch thread
/// waits for an answer.
TEST(NcclCommunicator, LearnsOfTheEndOfARunIfTheDeviceHangs) {
  ClosedDevice closed;
  const auto ends = run_two(
      [&](const RankSide& side, Rendezvous& rendezvous) {
        side.communicator.connect(kBothWays);
        if (side.rank == 1) {
          closed.await_question();
          rendezvous.abort("killed");
          return;
        }
        const OpenAtEnd at_end{closed};
        const auto buffer = side.device.allocate(8);
        side.communicator.receive(buffer->data(), 8, 1, side.stream, "activations");
        closed.close();
        await_end(rendezvous);
      },
      Seconds{300}, closed.change());
  EXPECT_EQ(ends[0].how, How::aborted);
  EXPECT_EQ(ends[0].message, "rank 1 ended the run: killed");
}

TEST(NcclCommunicator, ADeviceThatDoesNotAnswerTimesOutWithAReport) {
  ClosedDevice closed;
  const auto ends = run_two(
      [&](const RankSide& side, Rendezvous& rendezvous) {
        const OpenAtEnd at_end{closed};
        side.communicator.connect(kBothWays);
        const auto buffer = side.device.allocate(8);
        if (side.rank == 0) {
          side.communicator.receive(buffer->data(), 8, 1, side.stream, "activations");
          closed.close();
        }
        await_end(rendezvous);
      },
      Seconds{5}, closed.change());
  EXPECT_EQ(ends[0].how, How::error);
  EXPECT_EQ(ends[1].how, How::aborted);
  for (const RankEnd& end : ends) {
    for (const char* part : {"rank 0 waited for longer than 5.00 s", "rank 1 is not waiting",
                             "rank 0 waits for its device to answer ("}) {
      EXPECT_NE(end.message.find(part), std::string::npos) << part << " is not in " << end.message;
    }
  }
}

TEST(NcclCommunicator, AnAsyncErrorOfNcclEndsTheRun) {
  std::latch connected(2);
  const auto ends = run_two([&](const RankSide& side, Rendezvous&) {
    CountDown is_connected(connected);
    side.communicator.connect(kBothWays);
    is_connected.now();
    connected.wait();
    if (side.rank == 0) break_fake_nccl(ncclRemoteError);
    side.receive(8, 1 - side.rank, "activations");
    side.receive(8, 1 - side.rank, "activations");
  });
  break_fake_nccl(ncclSuccess);
  for (const RankEnd& end : ends) {
    EXPECT_EQ(end.how, How::aborted);
    EXPECT_NE(end.message.find("NCCL: a remote error; the fake's last words"), std::string::npos)
        << end.message;
  }
}

TEST(NcclCommunicator, TheRealLibraryLoadsOrNamesMissingFunctions) {
  try {
    const NcclTable table = load_nccl();
    int version = 0;
    EXPECT_EQ(table.get_version(&version), ncclSuccess);
    EXPECT_GE(version, NCCL_VERSION(2, 25, 0));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::no_device);
    EXPECT_NE(std::string(error.what()).find("libnccl.so.2"), std::string::npos) << error.what();
  }
}

}  // namespace communicator_test
}  // namespace dflop::testing
