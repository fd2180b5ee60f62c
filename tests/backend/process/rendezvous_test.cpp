// Tests how processes meet and exchange values, with ranks as threads.
#include "backend/process/rendezvous.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <latch>

#include "core/error.hpp"
#include "core/support/clock.hpp"
#include "core/support/random.hpp"
#include "tests/backend/process/rendezvous_ranks.hpp"

namespace dflop::testing {
namespace rendezvous_test {

TEST(Rendezvous, ValuesAreGatheredByRankAndBroadcastFromTheFirst) {
  for (const int ranks : {1, 2, 5}) {
    expect_done(run(ranks, [ranks](Rendezvous& rendezvous) {
      const std::string own = std::to_string(rendezvous.rank());
      for (int round = 0; round < 20; ++round) {
        const auto all = rendezvous.gather("from " + own, "names");
        std::vector<std::string> expected;
        for (int r = 0; r < ranks && rendezvous.rank() == 0; ++r)
          expected.push_back("from " + std::to_string(r));
        EXPECT_EQ(all, expected);
        const std::string word = "round " + std::to_string(round);
        EXPECT_EQ(rendezvous.broadcast(rendezvous.rank() == 0 ? word : "passed over", "a word"), word);
      }
    }));
  }
}

TEST(Rendezvous, AValueIsBytesOfAnySize) {
  Random random(3);
  std::string value(20'000'000, '\0');  // NOLINT(bugprone-string-constructor): intentionally this large
  for (std::size_t i = 0; i < value.size(); i += 1000) value[i] = static_cast<char>(random.below(256));
  expect_done(run(2, [&](Rendezvous& rendezvous) {
    EXPECT_EQ(rendezvous.broadcast(value, "a large value"), value);
    EXPECT_EQ(rendezvous.broadcast("", "nothing"), "");
    const auto all = rendezvous.gather(value, "large values");
    if (rendezvous.rank() == 0) {
      EXPECT_TRUE(all.at(1) == value);
    }
  }));
}

TEST(Rendezvous, AnEarlyRequestWaitsForTheValue) {
  expect_done(run(3, [](Rendezvous& rendezvous) {
    if (rendezvous.rank() == 2) {
      rendezvous.get(0, "asked by 0", "the others' question");
      rendezvous.get(1, "asked by 1", "the others' question");
      rendezvous.put("answer", "42", 2);
    } else {
      rendezvous.put(rendezvous.rank() == 0 ? "asked by 0" : "also asked", "");
      if (rendezvous.rank() == 1) {
        rendezvous.get(1, "also asked", "what it has put itself");
        rendezvous.put("asked by 1", "");
      }
      EXPECT_EQ(rendezvous.get(2, "answer", "the answer"), "42");
    }
  }));
}

/// Threads of one process read the same clock, so any offset is a measurement error, at most half of a round
/// trip.
TEST(Rendezvous, TellsTheClockOfRankZero) {
  expect_done(run(3, [](Rendezvous& rendezvous) {
    const Nanoseconds before = host_time();
    const Nanoseconds offset = rendezvous.clock_offset();
    const Nanoseconds took = host_time() - before;
    EXPECT_LE(std::abs(offset.count()), took.count());
    if (rendezvous.rank() == 0) {
      EXPECT_EQ(offset, Nanoseconds{0});
    }
  }));
}

TEST(Rendezvous, ALateRankIsWaitedFor) {
  const int port = free_port();
  RankOutcome second;
  std::jthread early([&] { second = outcome(options_of(1, 2, port), [](Rendezvous&) {}); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // it tries while nobody listens
  const RankOutcome first = outcome(options_of(0, 2, port), [](Rendezvous&) {});
  early.join();
  expect_done({first, second});
}

TEST(Rendezvous, MissingRanksAreNamed) {
  const int port = free_port();
  RankOutcome third;
  std::jthread thread([&] { third = outcome(options_of(2, 4, port), [](Rendezvous&) {}); });
  const RankOutcome first = outcome(options_of(0, 4, port, Seconds{2}), [](Rendezvous&) {});
  thread.join();
  for (const RankOutcome& end : {first, third}) {
    EXPECT_EQ(end.end, End::error);
    expect_says(end.message,
                "ranks 1, 3 have not connected to 127.0.0.1:" + std::to_string(port) + " within 2.00 s");
  }
}

TEST(Rendezvous, WithoutRankZeroConnectingFails) {
  const int port = free_port();
  const RankOutcome end = outcome(options_of(1, 2, port, Seconds{0.3}), [](Rendezvous&) {});
  EXPECT_EQ(end.end, End::error);
  expect_says(end.message, "rank 0 cannot be reached at 127.0.0.1:" + std::to_string(port));
  expect_says(end.message, "MASTER_ADDR");
}

TEST(Rendezvous, AnUnknownHostIsAnErrorOfUsage) {
  try {
    const Rendezvous rendezvous({"no-such-host.invalid", 29500, 1, 2, Seconds{0.1}, Seconds{1}});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    expect_says(error.what(), "no-such-host.invalid:29500");
  }
}

TEST(Rendezvous, AUsedPortIsAnError) {
  const int port = free_port();
  const Descriptor other = listen_on("127.0.0.1", port);
  const RankOutcome end = outcome(options_of(0, 1, port), [](Rendezvous&) {});
  EXPECT_EQ(end.end, End::error);
  expect_says(end.message, "rank 0 cannot listen at 127.0.0.1:" + std::to_string(port));
  expect_says(end.message, "Address already in use");
}

std::string machine_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

bool is_found_at(const std::string& host, int port) {
  try {
    connect_to(host, port, std::chrono::steady_clock::now() + std::chrono::milliseconds(100));
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Returns whether a listener on a loopback address is reached by that name.
bool is_found_at_loopback(const std::string& name) {
  for (const char* address : {"127.0.0.1", "127.0.1.1"}) {
    const int port = free_port();
    const Descriptor listener = listen_on(address, port);
    if (is_found_at(name, port)) return true;
  }
  return false;
}

/// 127.0.0.77 represents the address by which other machines know this one. A listener only on 127.0.0.1 is
/// not reachable there.
TEST(ListenOn, ALoopbackNameIsReachableFromOtherMachines) {
  const int port = free_port();
  {
    const Descriptor listener = listen_on("localhost", port);
    EXPECT_FALSE(is_found_at("127.0.0.77", port));
  }
  try {
    const Descriptor listener = listen_on("127.0.0.77", port);
    EXPECT_FALSE(is_found_at("127.0.0.1", port));
  } catch (const Error&) {
    GTEST_SKIP() << "this system has one loopback address";
  }
  const std::string name = machine_name();
  if (name == "localhost" || !is_found_at_loopback(name)) GTEST_SKIP() << name << " is no loopback address";
  const Descriptor listener = listen_on(name, port);
  EXPECT_TRUE(is_found_at("127.0.0.77", port));
}

/// A port scanner, and clients that only connect.
TEST(Rendezvous, StrangersChangeNothing) {
  const int port = free_port();
  Random random(7);
  std::latch met(3);  // both ranks and this thread
  const RankBody body = [&](Rendezvous& rendezvous) {
    rendezvous.broadcast("go", "a word");
    met.arrive_and_wait();  // the strangers go on until the ranks have met
    rendezvous.broadcast("still here", "a word");
  };
  std::vector<RankOutcome> ends(2);
  std::vector<std::jthread> ranks;
  ranks.emplace_back([&] { ends[0] = outcome(options_of(0, 2, port), body); });
  std::vector<Descriptor> silent;
  const std::string hello = to_bytes({FrameKind::hello, "1 2", 0, ""});
  for (int i = 0; i < 40; ++i) {
    const Descriptor stranger =
        connect_to("127.0.0.1", port, std::chrono::steady_clock::now() + std::chrono::seconds(10));
    std::string garbage(random.below(200), '\0');
    for (char& c : garbage) c = static_cast<char>(random.below(256));
    if (i % 4 == 0) garbage = "GET / HTTP/1.1\r\n\r\n";
    if (i % 4 == 1) garbage = hello.substr(0, random.below(hello.size()));
    if (i % 4 == 2) garbage = to_bytes({FrameKind::abort, "", 0, "from outside"});
    send_bytes(stranger, garbage);
    silent.push_back(
        connect_to("127.0.0.1", port, std::chrono::steady_clock::now() + std::chrono::seconds(10)));
  }
  ranks.emplace_back([&] { ends[1] = outcome(options_of(1, 2, port), body); });
  met.arrive_and_wait();
  ranks.clear();
  expect_done(ends);
}

TEST(Rendezvous, ARankOfAnotherRunIsRejectedAndTheRunContinues) {
  const int port = free_port();
  std::vector<RankOutcome> ends(2);
  std::jthread first([&] { ends[0] = outcome(options_of(0, 2, port), [](Rendezvous&) {}); });
  const RankOutcome stranger = outcome(options_of(3, 8, port), [](Rendezvous&) {});
  EXPECT_EQ(stranger.end, End::error);
  expect_says(stranger.message, "rank 0 belongs to a run of 2 ranks, rank 3 to a run of 8");
  const RankOutcome twin = outcome({"127.0.0.1", port, 5, 2, Seconds{60}, kNever}, [](Rendezvous&) {});
  expect_says(twin.message, "expected a rank from 0 to 1, found rank 5");
  ends[1] = outcome(options_of(1, 2, port), [](Rendezvous&) {});
  first.join();
  expect_done(ends);
}

TEST(FrameBuffer, FramesComeOutWholeWhateverThePieces) {
  Random random(11);
  std::string bytes;
  std::vector<Frame> frames;
  for (int i = 0; i < 200; ++i) {
    frames.push_back({static_cast<FrameKind>(random.below(15)), std::string(random.below(20), 'k'),
                      static_cast<std::uint32_t>(random.below(1u << 31)),
                      std::string(random.below(3000), 'v')});
    bytes += to_bytes(frames.back());
  }
  FrameBuffer buffer;
  std::size_t come = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t size = std::min<std::size_t>(random.below(2000), bytes.size() - at);
    buffer.append(std::string_view(bytes).substr(at, size));
    at += size;
    while (const auto frame = buffer.next(3000)) {
      ASSERT_LT(come, frames.size());
      EXPECT_EQ(frame->kind, frames[come].kind);
      EXPECT_EQ(frame->key, frames[come].key);
      EXPECT_EQ(frame->readers, frames[come].readers);
      EXPECT_EQ(frame->value, frames[come].value);
      ++come;
    }
  }
  EXPECT_EQ(come, frames.size());
}

TEST(FrameBuffer, RejectsBytesThatAreNoFrame) {
  const std::string good = to_bytes({FrameKind::put, "key", 1, "value"});
  for (std::size_t i = 0; i < 5; ++i) {  // "DFL1" and the kind
    std::string bad = good;
    bad[i] = '\x7F';
    FrameBuffer buffer;
    buffer.append(bad);
    EXPECT_THROW(buffer.next(100), Error) << "byte " << i;
  }
  FrameBuffer buffer;
  buffer.append(good);
  EXPECT_THROW(buffer.next(4), Error);  // of five
}

}  // namespace rendezvous_test
}  // namespace dflop::testing
