// Strangers at the rendezvous: clients that are not ranks of the run have no effect, and a rank that breaks
// the protocol can at most end the run with a reason.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <optional>

#include "core/support/random.hpp"
#include "tests/backend/process/rendezvous_ranks.hpp"

namespace dflop::testing {
namespace strangers_test {

const std::string kToken = "job 4711";

/// A Stranger sends frames, or arbitrary bytes, to the rendezvous of a run.
class Stranger {
 public:
  explicit Stranger(int port, Seconds patience = Seconds{20})
      : connection_(connect_to("127.0.0.1", port, in_time(patience))) {}

  bool send(const std::string& bytes) { return send_bytes(connection_, bytes); }
  bool send(const Frame& frame) { return send(to_bytes(frame)); }
  bool hello(const std::string& key, const std::string& token) {
    return send({FrameKind::hello, key, 0, token});
  }

  /// Says hello as a rank and answers the challenge, as a rank does.
  void join(const std::string& key, const std::string& token) {
    hello(key, token);
    const auto challenge = next();
    ASSERT_TRUE(challenge && challenge->kind == FrameKind::challenge);
    send({FrameKind::proof, "", 0, challenge->value});
  }

  /// Returns the next frame; none if the connection is closed, or silent for ten seconds.
  std::optional<Frame> next() {
    while (true) {
      if (auto frame = received_.next(kMaxValueBytes)) return frame;
      pollfd polled{connection_.number(), POLLIN, 0};
      if (::poll(&polled, 1, 10'000) <= 0) return std::nullopt;
      if (!receive_bytes(connection_, received_)) return std::nullopt;
    }
  }

  /// Returns whether the other side has closed the connection, waiting for up to ten seconds.
  bool is_closed() {
    try {
      while (next()) {
      }
    } catch (const Error&) {
      return false;
    }
    pollfd polled{connection_.number(), POLLIN, 0};
    return ::poll(&polled, 1, 0) > 0;
  }

 private:
  Descriptor connection_;
  FrameBuffer received_;
};

RendezvousOptions with_token(int rank, int ranks, int port, Seconds timeout = kNever) {
  RendezvousOptions options = options_of(rank, ranks, port, Seconds{60}, timeout);
  options.token = kToken;
  return options;
}

/// Runs three ranks. Two of them connect only after `strangers` is done with the port.
std::vector<RankOutcome> run_after(const std::string& token, const std::function<void(int port)>& strangers) {
  const int port = free_port();
  const RankBody body = [](Rendezvous& rendezvous) {
    EXPECT_EQ(rendezvous.broadcast(rendezvous.rank() == 0 ? "go" : "", "a word"), "go");
  };
  std::vector<RankOutcome> ends(3);
  std::vector<std::jthread> ranks;
  const auto start = [&](int rank) {
    ranks.emplace_back([&, rank] {
      RendezvousOptions options = options_of(rank, 3, port);
      options.token = token;
      ends[static_cast<std::size_t>(rank)] = outcome(options, body);
    });
  };
  start(0);
  strangers(port);
  start(1);
  start(2);
  ranks.clear();
  return ends;
}

TEST(Strangers, ClosingAfterHelloEndsNoRun) {
  for (const std::string& token : {std::string(), kToken}) {
    expect_done(run_after(token, [&](int port) {
      for (const char* rank : {"1 3", "2 3", "0 3"}) Stranger(port).hello(rank, token);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));  // time to notice that it is gone
    }));
  }
}

TEST(Strangers, ARankThatDisconnectsFreesItsPlace) {
  expect_done(run_after("", [&](int port) {
    Stranger(port).join("1 3", "");
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }));
}

/// All other ranks are connected: if it counted, the run would seem to be complete.
TEST(Strangers, AnOpenHelloDoesNotCountAsTheLastRank) {
  const int port = free_port();
  std::vector<RankOutcome> ends(2);
  std::jthread first([&] { ends[0] = outcome(options_of(0, 2, port), [](Rendezvous&) {}); });
  Stranger stays(port);
  stays.hello("1 2", "");
  EXPECT_TRUE(stays.next());
  Stranger wrong(port);
  wrong.hello("1 2", "");
  EXPECT_TRUE(wrong.next());
  wrong.send({FrameKind::proof, "", 0, "1 2"});
  EXPECT_TRUE(wrong.is_closed());
  ends[1] = outcome(options_of(1, 2, port), [](Rendezvous&) {});
  first.join();
  expect_done(ends);
  EXPECT_TRUE(stays.is_closed());
}

TEST(Strangers, WithoutTheTokenARankIsRejectedAndTakesNoPlace) {
  std::vector<std::unique_ptr<Stranger>> strangers;  // they stay connected
  expect_done(run_after(kToken, [&](int port) {
    for (const std::string token : {"", "job 4712", "job 471", "job 4711 "}) {
      strangers.push_back(std::make_unique<Stranger>(port));
      strangers.back()->hello("1 3", token);
      const auto answer = strangers.back()->next();
      ASSERT_TRUE(answer);
      EXPECT_EQ(answer->kind, FrameKind::refused);
      expect_says(answer->value, "rank 1 and rank 0 have different tokens");
      expect_says(answer->value, "DFLOP_TOKEN");
      EXPECT_EQ(answer->value.find("4711"), std::string::npos) << "it tells the token";
      EXPECT_TRUE(strangers.back()->is_closed());
    }
  }));
}

TEST(Strangers, ATokenIsRejectedWhereRankZeroHasNone) {
  expect_done(run_after("", [&](int port) {
    const RankOutcome other = outcome(with_token(1, 3, port), [](Rendezvous&) {});
    EXPECT_EQ(other.end, End::error);
    expect_says(other.message, "rank 1 and rank 0 have different tokens, or only one of them has a token");
  }));
}

/// After hello, a rank waits for its welcome. A client that sends anything else is not a rank.
TEST(Strangers, SendingBeforeTheWelcomeFreesThePlace) {
  const std::vector<std::string> wrong = {
      to_bytes({FrameKind::abort, "", 0, "from outside"}),
      to_bytes({FrameKind::put, "broadcast 0", 1, "wrong"}), to_bytes({FrameKind::bye, "", 0, ""}),
      to_bytes({FrameKind::hello, "1 3", 0, ""}), to_bytes({FrameKind::late, "", 0, ""}),
      // announces a value of 2^62 bytes and sends none
      head_bytes({FrameKind::put, "broadcast 0", 1, ""}, std::uint64_t{1} << 62)};
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (const bool proves : {false, true}) {
    expect_done(run_after("", [&](int port) {
      for (const std::string& bytes : wrong) {
        strangers.push_back(std::make_unique<Stranger>(port));
        if (proves) {
          strangers.back()->join("1 3", "");
        } else {
          strangers.back()->hello("1 3", "");
        }
        strangers.back()->send(bytes);
        EXPECT_TRUE(strangers.back()->is_closed());
      }
    }));
  }
}

TEST(Strangers, TheOldestSilentConnectionIsClosedForTheNext) {
  std::vector<std::unique_ptr<Stranger>> silent;
  expect_done(run_after("", [&](int port) {
    for (std::size_t i = 0; i < kMaxSilent + 3; ++i) silent.push_back(std::make_unique<Stranger>(port));
    for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(silent[i]->is_closed()) << i;
  }));
}

TEST(Strangers, ThePortClosesOnceAllHaveMet) {
  const int port = free_port();
  std::latch met(3);
  std::latch tried(1);
  std::vector<RankOutcome> ends(2);
  {
    std::vector<std::jthread> ranks;
    for (int r = 0; r < 2; ++r) {
      ranks.emplace_back([&, r] {
        ends[static_cast<std::size_t>(r)] = outcome(options_of(r, 2, port), [&](Rendezvous&) {
          met.arrive_and_wait();
          tried.wait();
        });
      });
    }
    met.arrive_and_wait();
    EXPECT_THROW(connect_to("127.0.0.1", port, in_time(Seconds{0.1})), Error);
    tried.count_down();
  }
  expect_done(ends);
}

/// A value that another rank puts under rank 0's name is ignored.
TEST(Strangers, NoRankSpeaksForAnother) {
  expect_done(run(3, [](Rendezvous& rendezvous) {
    if (rendezvous.rank() == 1) {
      for (const char* key : {"broadcast 0", "broadcast 1", "gather 0"}) rendezvous.put(key, "forged", 2);
    }
    rendezvous.gather("", "that the forged ones are there");
    EXPECT_EQ(rendezvous.broadcast(rendezvous.rank() == 0 ? "true" : "", "a word"), "true");
    EXPECT_EQ(rendezvous.broadcast(rendezvous.rank() == 0 ? "too" : "", "a word"), "too");
    if (rendezvous.rank() == 2) rendezvous.put("gather 7", "of rank 2");
    if (rendezvous.rank() == 0) {
      EXPECT_EQ(rendezvous.get(2, "gather 7", "a value"), "of rank 2");
    }
  }));
}

/// Returns rank 1 of a run, played by the test, once all ranks have met.
std::unique_ptr<Stranger> rank_one(int port, int ranks) {
  auto rank = std::make_unique<Stranger>(port);
  rank->join("1 " + std::to_string(ranks), kToken);
  const auto welcome = rank->next();
  EXPECT_TRUE(welcome && welcome->kind == FrameKind::welcome);
  return rank;
}

/// It requests more than a connection buffers, so the server must keep the rest.
TEST(Strangers, ARankThatReadsNothingBlocksNoOther) {
  const int port = free_port();
  std::vector<RankOutcome> ends(3);
  std::atomic<int> words = 0;
  std::latch over(1);
  {
    std::vector<std::jthread> ranks;
    for (const int r : {0, 2}) {
      ranks.emplace_back([&, r] {
        ends[static_cast<std::size_t>(r)] = outcome(with_token(r, 3, port), [&](Rendezvous& rendezvous) {
          if (r == 0) rendezvous.put("large", std::string(100'000'000, 'x'));
          if (r == 0) rendezvous.get(1, "asked", "rank 1");
          for (int i = 0; i < 20; ++i) {
            const std::string key = "word " + std::to_string(i);
            rendezvous.put(key, "from " + std::to_string(r));
            const int other = 2 - r;
            if (rendezvous.get(other, key, "a word") == "from " + std::to_string(other)) ++words;
          }
          over.wait();
          rendezvous.get(1, "never put", "nothing");
        });
      });
    }
    const auto rank = rank_one(port, 3);
    rank->send({FrameKind::get, "large", 0, ""});
    rank->send({FrameKind::put, "asked", 1, ""});
    while (words < 40) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    over.count_down();
  }  // its connection closes
  for (const std::size_t r : {0u, 2u}) {
    EXPECT_EQ(ends[r].end, End::aborted);
    expect_says(ends[r].message, "rank 1 is gone");
  }
}

TEST(Strangers, ARankThatReadsNothingUntilTheTimeoutIsLost) {
  const int port = free_port();
  RankOutcome end;
  std::jthread first([&] {
    end = outcome(with_token(0, 2, port, Seconds{1}), [&](Rendezvous& rendezvous) {
      rendezvous.put("large", std::string(100'000'000, 'x'));
      rendezvous.get(1, "asked", "rank 1");
      while (true) {  // it does not wait for anyone
        rendezvous.check();
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
  });
  const auto rank = rank_one(port, 2);
  rank->send({FrameKind::get, "large", 0, ""});
  rank->send({FrameKind::put, "asked", 1, ""});
  first.join();  // would never end if the value were kept forever
  EXPECT_EQ(end.end, End::aborted);
  expect_says(end.message, "rank 1 is gone");
}

TEST(Strangers, ARankThatPutsEndlesslyEndsTheRunWithTheReason) {
  const int port = free_port();
  RankOutcome end;
  std::jthread first([&] {
    end = outcome(with_token(0, 2, port),
                  [&](Rendezvous& rendezvous) { rendezvous.get(1, "never put", "nothing"); });
  });
  const auto rank = rank_one(port, 2);
  for (std::size_t i = 0; i <= kMaxKeysOfRank; ++i)
    rank->send({FrameKind::put, "key " + std::to_string(i), 1, ""});
  first.join();
  EXPECT_EQ(end.end, End::aborted);
  expect_says(end.message, "rank 1 sends values faster than other ranks receive them");
  expect_says(end.message, std::to_string(kMaxKeysOfRank));
}

TEST(Strangers, FramesHaveASizeLimitPerKind) {
  const auto is_refused = [](const Frame& frame, std::uint64_t bytes, std::uint64_t most) {
    FrameBuffer buffer;
    buffer.append(head_bytes(frame, bytes));
    try {
      return buffer.next(most).has_value();
    } catch (const Error&) {
      return true;
    }
  };
  for (const FrameKind kind : {FrameKind::put, FrameKind::value, FrameKind::ended}) {
    EXPECT_FALSE(is_refused({kind, "key", 1, ""}, kMaxValueBytes, kMaxValueBytes));
    EXPECT_TRUE(is_refused({kind, "key", 1, ""}, kMaxValueBytes + 1, kMaxValueBytes));
  }
  for (const FrameKind kind : {FrameKind::abort, FrameKind::state, FrameKind::hello, FrameKind::get}) {
    EXPECT_FALSE(is_refused({kind, "key", 1, ""}, kMaxWordBytes, kMaxValueBytes));
    EXPECT_TRUE(is_refused({kind, "key", 1, ""}, kMaxWordBytes + 1, kMaxValueBytes));
    EXPECT_TRUE(is_refused({kind, "key", 1, ""}, kMaxHelloBytes + 1, kMaxHelloBytes));
  }
  EXPECT_TRUE(is_refused({FrameKind::put, std::string(kMaxKeyBytes + 1, 'k'), 1, ""}, 1, kMaxValueBytes));
}

/// A process without free descriptors waits, and continues when there are some. With strangers in its queue,
/// it would waste a core if it retried at once. The regular work of its threads, ten times a second, takes a
/// millisecond of CPU time.
TEST(Strangers, WithoutDescriptorsNothingSpins) {
  const int port = free_port();
  const pid_t first = ::fork();
  if (first == 0) {
    RankOutcome end;
    std::jthread rank([&] { end = outcome(options_of(0, 2, port), [](Rendezvous&) {}); });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    const Descriptor next(::dup(0));
    const rlim_t usual = limit.rlim_cur;
    limit.rlim_cur = static_cast<rlim_t>(next.number());
    ::setrlimit(RLIMIT_NOFILE, &limit);
    rusage before{};
    ::getrusage(RUSAGE_SELF, &before);
    std::this_thread::sleep_for(std::chrono::seconds(1));
    rusage after{};
    ::getrusage(RUSAGE_SELF, &after);
    limit.rlim_cur = usual;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    const auto seconds = [](const rusage& use) {
      return static_cast<double>(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
             1e-6 * static_cast<double>(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
    };
    rank.join();
    ::_exit(end.end != End::done ? 1 : seconds(after) - seconds(before) < 0.05 ? 42 : 2);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  std::vector<Stranger> waiting;
  for (int i = 0; i < 8; ++i) waiting.emplace_back(port);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const RankOutcome second = outcome(options_of(1, 2, port), [](Rendezvous&) {});
  EXPECT_EQ(second.end, End::done) << second.message;
  int status = 0;
  ::waitpid(first, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 42) << "1: the run has failed; 2: it was busy";
}

/// Returns the bytes of a random frame, complete or not.
std::string random_bytes(Random& random) {
  const auto text = [&](std::uint64_t most) {
    std::string made(random.below(most), '\0');
    for (char& c : made) c = static_cast<char>(random.below(256));
    return made;
  };
  const std::vector<std::string> keys = {"1 2",         "1 3",      "0 3", "-1 3",  "99999999999 3",
                                         "broadcast 0", "gather 0", "",    text(40)};
  Frame frame{static_cast<FrameKind>(random.below(16)), keys[random.below(keys.size())],
              static_cast<std::uint32_t>(random.below(5)), text(300)};
  if (random.below(8) == 0) frame.readers = static_cast<std::uint32_t>(random.below(std::uint64_t{1} << 32));
  std::string bytes = to_bytes(frame);
  switch (random.below(8)) {
    case 0:
      return text(400);
    case 1:
      return bytes.substr(0, random.below(bytes.size()));
    case 2:
      bytes[random.below(bytes.size())] ^= static_cast<char>(1 + random.below(255));
      return bytes;
    case 3:
      return head_bytes(frame, random.below(std::uint64_t{1} << 63));
    default:
      return bytes;
  }
}

/// Clients without the token send anything, from before the meeting until after it.
TEST(Strangers, ARunCompletesDuringAStormOfStrangers) {
  constexpr int kRanks = 4;
  const int port = free_port();
  std::atomic<bool> over = false;
  std::vector<std::jthread> storm;
  std::vector<RankOutcome> ends(kRanks);
  {
    std::vector<std::jthread> ranks;
    for (int r = 0; r < kRanks; ++r) {
      ranks.emplace_back([&, r] {
        std::this_thread::sleep_for(std::chrono::milliseconds(150 * r));
        ends[static_cast<std::size_t>(r)] = outcome(with_token(r, kRanks, port), [r](Rendezvous& rendezvous) {
          for (int round = 0; round < 50; ++round) {
            const std::string word = "round " + std::to_string(round);
            const auto all = rendezvous.gather(word + std::to_string(r), "words");
            for (std::size_t o = 0; o < all.size(); ++o) EXPECT_EQ(all[o], word + std::to_string(o));
            EXPECT_EQ(rendezvous.broadcast(r == 0 ? word : "", "a word"), word);
          }
        });
      });
    }
    for (int s = 0; s < 2; ++s) {
      storm.emplace_back([&, s] {
        Random random(static_cast<std::uint64_t>(17 + s));
        while (!over) {
          try {
            Stranger stranger(port, Seconds{0.06});
            if (random.below(2) == 0) stranger.hello(std::to_string(random.below(4)) + " 4", "");
            for (auto i = random.below(4); i > 0; --i) stranger.send(random_bytes(random));
          } catch (const Error&) {  // nobody listens yet, or no longer
          }
        }
      });
    }
    ranks.clear();
    over = true;
  }
  storm.clear();
  expect_done(ends);
}

/// The states of the protocol in which a peer starts to send anything.
enum class State : std::uint8_t { before_hello, before_proof, before_welcome, met, left, ended };

class StrangersInState : public ::testing::TestWithParam<State> {};

/// The real ranks exchange their values or learn of the end. No rank receives a value that is not its
/// owner's.
TEST_P(StrangersInState, AnyInputIsTolerated) {
  for (std::uint64_t seed = 0; seed < 15; ++seed) {
    const State state = GetParam();
    const bool before =
        state == State::before_hello || state == State::before_proof || state == State::before_welcome;
    Random random(seed);
    const int port = free_port();
    std::vector<RankOutcome> ends(3);
    const auto body = [&](Rendezvous& rendezvous) {
      const int r = rendezvous.rank();
      for (int i = 0; i < 3; ++i) {
        const std::string key = "broadcast " + std::to_string(i);
        rendezvous.put(key, "from " + std::to_string(r));
        const int other = 2 - r;
        EXPECT_EQ(rendezvous.get(other, key, "a word"), "from " + std::to_string(other));
      }
      if (state == State::ended && r == 0) rendezvous.abort("enough");
      if (state == State::met || state == State::ended) rendezvous.get(1, "never put", "nothing");
    };
    std::vector<std::jthread> ranks;
    const auto start = [&](int rank) {
      ranks.emplace_back([&, rank] {
        ends[static_cast<std::size_t>(rank)] = outcome(with_token(rank, 3, port, Seconds{1}), body);
      });
    };
    start(0);
    if (!before) start(2);
    {
      Stranger player(port);
      if (state == State::before_proof) player.hello("1 3", kToken);
      if (state != State::before_hello && state != State::before_proof) player.join("1 3", kToken);
      if (!before) player.next();  // welcome
      if (state == State::left) player.send({FrameKind::bye, "", 0, ""});
      while (state == State::ended) {
        const auto frame = player.next();
        if (!frame || frame->kind == FrameKind::ended) break;
      }
      for (auto i = 1 + random.below(6); i > 0; --i) player.send(random_bytes(random));
    }
    if (before) start(2);
    if (before) ends[1] = outcome(with_token(1, 3, port), [](Rendezvous&) {});
    ranks.clear();
    if (before) {
      expect_done(ends);
      continue;
    }
    for (const std::size_t r : {0u, 2u}) {
      if (state != State::left) {  // its goodbye was received, so the others may finish
        EXPECT_NE(ends[r].end, End::done) << "seed " << seed;
      }
      EXPECT_EQ(ends[r].message.empty(), ends[r].end == End::done) << "seed " << seed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, StrangersInState,
                         ::testing::Values(State::before_hello, State::before_proof, State::before_welcome,
                                           State::met, State::left, State::ended));

/// A stranger that listens in place of rank 0 may answer anything, before and after its welcome.
TEST(Strangers, ARankSurvivesAnyListener) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const int port = free_port();
    const Descriptor listener = listen_on("127.0.0.1", port);
    std::jthread impostor([&] {
      Random random(seed);
      pollfd polled{listener.number(), POLLIN, 0};
      ::poll(&polled, 1, 10'000);
      const Descriptor connection = accept_from(listener);
      if (seed % 2 == 0) send_bytes(connection, to_bytes({FrameKind::welcome, "", 0, ""}));
      if (seed % 4 == 0) send_bytes(connection, to_bytes({FrameKind::pong, "", 0, "noon"}));
      for (auto i = random.below(6); i > 0; --i) send_bytes(connection, random_bytes(random));
    });
    const RankOutcome end = outcome(with_token(1, 2, port), [](Rendezvous& rendezvous) {
      rendezvous.clock_offset();
      rendezvous.get(0, "never put", "nothing");
    });
    EXPECT_NE(end.end, End::done) << "seed " << seed;
    EXPECT_FALSE(end.message.empty() && end.end != End::aborted) << "seed " << seed;
  }
}

}  // namespace strangers_test
}  // namespace dflop::testing
