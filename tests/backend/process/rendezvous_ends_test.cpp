// Tests how a run ends: by an abort, a timeout, or a process that is killed or stopped.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <latch>

#include "core/support/clock.hpp"
#include "tests/backend/count_down.hpp"
#include "tests/backend/process/rendezvous_ranks.hpp"

namespace dflop::testing {
namespace rendezvous_ends_test {

TEST(RendezvousEnds, AbortReachesWaitingAndLaterRanks) {
  std::atomic<int> told = 0;
  const auto ends = run(4, [&](Rendezvous& rendezvous) {
    rendezvous.on_end([&] { ++told; });
    if (rendezvous.rank() == 2) {
      rendezvous.abort("the loss is NaN");
      rendezvous.abort("a second reason, which nobody hears of");
      rendezvous.check();
    }
    if (rendezvous.rank() == 0) rendezvous.gather("", "losses");
    rendezvous.get(0, "never put", "nothing");
  });
  for (const RankOutcome& end : ends) {
    EXPECT_EQ(end.end, End::aborted);
    EXPECT_EQ(end.message, "rank 2 ended the run: the loss is NaN");
  }
  EXPECT_EQ(told, 4);
}

TEST(RendezvousEnds, ATimeoutEndsTheRunAndReportsTheWaitOfEachRank) {
  std::latch waits(1);  // rank 2 waits, or is about to
  std::latch over(1);
  const auto ends = run(
      4,
      [&](Rendezvous& rendezvous) {
        if (rendezvous.rank() == 0) return;
        if (rendezvous.rank() == 2) {
          const CountDown at_end(over);
          waits.count_down();
          rendezvous.get(0, "never put", "activations of microbatch 3");
        }
        if (rendezvous.rank() == 3) {
          waits.wait();
          rendezvous.watch([since = host_time()] {
            return RankState{RankWait{"gradients of stage 1", since}, {}};
          });
        }
        over.wait();                                // rank 1 does not wait for any rank
        rendezvous.get(0, "never put", "nothing");  // it may learn of the end later than rank 2
      },
      Seconds{2});
  EXPECT_EQ(ends[0].end, End::done);
  int errors = 0;
  for (const std::size_t r : {1u, 2u, 3u}) {
    errors += ends[r].end == End::error ? 1 : 0;
    for (const char* part :
         {"waited for longer than 2.00 s:", "\n  rank 0 has ended", "\n  rank 1 is not waiting",
          "\n  rank 2 waits for activations of microbatch 3 (",
          "\n  rank 3 waits for gradients of stage 1 ("}) {
      expect_says(ends[r].message, part);
    }
  }
  EXPECT_EQ(errors, 1);  // the rank that timed out; the others are aborted
}

/// Runs `body` in a child process, which exits with its return value.
pid_t in_process(const std::function<int()>& body) {
  const pid_t process = ::fork();
  if (process == 0) ::_exit(body());
  return process;
}

int status_of(pid_t process) {
  int status = 0;
  ::waitpid(process, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(RendezvousEnds, AKilledProcessEndsTheRunOfTheOthers) {
  for (const int victim : {0, 1}) {
    const int port = free_port();
    std::vector<pid_t> processes;
    for (int r = 0; r < 3; ++r) {
      processes.push_back(in_process([&] {
        const RankOutcome end = outcome(options_of(r, 3, port), [&](Rendezvous& rendezvous) {
          rendezvous.gather("", "a first word");
          rendezvous.broadcast("", "a second word");
          if (rendezvous.rank() == victim) ::raise(SIGKILL);
          rendezvous.get(0, "never put", "nothing");
        });
        const std::string expected = "rank " + std::to_string(victim) + " is gone";
        return end.end == End::aborted && end.message.rfind(expected, 0) == 0 ? 42 : 1;
      }));
    }
    for (int r = 0; r < 3; ++r) {
      EXPECT_EQ(status_of(processes[static_cast<std::size_t>(r)]), r == victim ? 128 + SIGKILL : 42)
          << "rank " << r << " where " << victim << " was killed";
    }
  }
}

/// It has said goodbye, so no rank waits for it or for the news of its goodbye.
TEST(RendezvousEnds, ARankThatHasLeftMayDieBeforeTheOthersLeave) {
  const int port = free_port();
  const pid_t third = in_process([&] {
    Rendezvous rendezvous(options_of(2, 3, port));
    std::jthread leaving([&] { rendezvous.leave(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // time to say goodbye
    rendezvous.put("goodbye", "", 2);
    ::raise(SIGKILL);
    return 0;
  });
  std::vector<RankOutcome> ends(2);
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < 2; ++r) {
      threads.emplace_back([&, r] {
        ends[static_cast<std::size_t>(r)] = outcome(options_of(r, 3, port), [](Rendezvous& rendezvous) {
          rendezvous.get(2, "goodbye", "rank 2");
          std::this_thread::sleep_for(std::chrono::milliseconds(300));  // time to notice its end
        });
      });
    }
  }  // would wait forever if its goodbye were forgotten with its connection
  EXPECT_EQ(status_of(third), 128 + SIGKILL);
  expect_done(ends);
}

TEST(RendezvousEnds, AWaitForAStoppedRankZeroTimesOut) {
  const int port = free_port();
  const pid_t first = in_process([&] {
    Rendezvous rendezvous(options_of(0, 2, port));
    rendezvous.get(1, "a first word", "rank 1");
    ::raise(SIGSTOP);
    return 0;
  });
  const RankOutcome second =
      outcome(options_of(1, 2, port, Seconds{60}, Seconds{0.3}), [&](Rendezvous& rendezvous) {
        rendezvous.put("a first word", "");
        int status = 0;
        ASSERT_EQ(::waitpid(first, &status, WUNTRACED), first);
        ASSERT_TRUE(WIFSTOPPED(status));
        rendezvous.get(0, "never put", "a word");
      });
  ::kill(first, SIGKILL);
  status_of(first);
  EXPECT_EQ(second.end, End::error);
  expect_says(second.message, "rank 0 does not answer rank 1, which waits for a word (");
}

/// Rank 1 has almost timed out when it is first asked, and no longer waits when it is asked again. As asking
/// takes time, nobody knows in between how long it has waited.
TEST(RendezvousEnds, AWaitThatEndedInTimeIsNotReportedAsLate) {
  std::latch answered(1);
  const auto ends = run(
      2,
      [&](Rendezvous& rendezvous) {
        if (rendezvous.rank() == 0) return;
        int asked = 0;
        rendezvous.watch([&] {
          if (++asked == 1) {
            return RankState{RankWait{"a letter", host_time() - to_nanoseconds(Seconds{29.9})}, {}};
          }
          if (asked == 2) {
            std::this_thread::sleep_for(std::chrono::milliseconds(500));
            answered.count_down();
          }
          return RankState{};
        });
        answered.wait();
        rendezvous.watch(nullptr);
        rendezvous.check();
      },
      Seconds{30});
  expect_done(ends);
}

/// The watch of rank 1 does not answer until the run's end is known.
TEST(RendezvousEnds, TheEndArrivesWhileAWatchIsAsked) {
  std::latch asked(1);
  std::latch heard(1);
  const auto ends = run(2, [&](Rendezvous& rendezvous) {
    if (rendezvous.rank() == 0) {
      asked.wait();
      rendezvous.abort("killed");
    } else {
      std::atomic<bool> told = false;
      rendezvous.on_end([&] { told = true; });
      rendezvous.watch([&] {
        asked.count_down();
        heard.wait();
        return RankState{};
      });
      EXPECT_THROW(rendezvous.get(0, "never put", "nothing"), Aborted);
      while (!told) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      heard.count_down();
      rendezvous.watch(nullptr);
    }
    rendezvous.check();
  });
  for (const RankOutcome& end : ends) {
    EXPECT_EQ(end.end, End::aborted);
    EXPECT_EQ(end.message, "rank 0 ended the run: killed");
  }
}

/// The watch throws, like a device that is queried after it has failed.
TEST(RendezvousEnds, AWatchThatThrowsEndsTheRun) {
  const auto ends = run(2, [](Rendezvous& rendezvous) {
    if (rendezvous.rank() == 1) {
      rendezvous.watch([]() -> RankState { throw Error(ErrorKind::internal, "the GPU has failed"); });
    }
    rendezvous.get(0, "never put", "nothing");
  });
  for (const RankOutcome& end : ends) {
    EXPECT_EQ(end.end, End::aborted);
    EXPECT_EQ(end.message, "rank 1 ended the run: the GPU has failed");
  }
}

TEST(RendezvousEnds, AFailureArrivesEvenIfItsProcessExitsAtOnce) {
  for (const int failing : {0, 1}) {
    const int port = free_port();
    std::vector<pid_t> processes;
    for (int r = 0; r < 2; ++r) {
      processes.push_back(in_process([&] {
        const RankOutcome end = outcome(options_of(r, 2, port), [&](Rendezvous& rendezvous) {
          if (rendezvous.rank() == failing) {
            rendezvous.abort("out of memory");
            return;
          }
          rendezvous.get(0, "never put", "nothing");
        });
        if (r == failing) return 42;
        return end.message == "rank " + std::to_string(failing) + " ended the run: out of memory" ? 42 : 1;
      }));
    }
    for (const pid_t process : processes) EXPECT_EQ(status_of(process), 42) << "rank " << failing << " fails";
  }
}

}  // namespace rendezvous_ends_test
}  // namespace dflop::testing
