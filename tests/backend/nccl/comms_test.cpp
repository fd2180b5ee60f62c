// Tests which NCCL versions are accepted, and how often a call in progress is polled.
#include "backend/nccl/comms.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/backend/nccl/fake.hpp"
#include "tests/backend/process/free_port.hpp"

namespace dflop::testing {
namespace comms_test {

/// Checks a table of fake functions that report a version; without one, the query fails.
std::string problem_of(std::optional<int> version) {
  static std::optional<int> told;
  told = version;
  NcclTable table = fake_nccl();
  table.get_version = [](int* number) {
    if (!told) return ncclSystemError;
    *number = *told;
    return ncclSuccess;
  };
  try {
    require_version(table, "libnccl.so.2");
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::no_device);
    return error.message();
  }
}

TEST(NcclVersion, VersionsBelow225AreRejectedInOneLine) {
  const std::string rest =
      ", expected 2.25.0 or newer: install a newer NCCL; if the old one is still found, put the folder of "
      "the new one first in LD_LIBRARY_PATH";
  EXPECT_EQ(problem_of(22809), "");
  EXPECT_EQ(problem_of(22500), "");
  EXPECT_EQ(problem_of(22406), "libnccl.so.2 is NCCL 2.24.6" + rest);
  EXPECT_EQ(problem_of(2804), "libnccl.so.2 is NCCL 2.8.4" + rest);  // encoded as in 2.8 and older
  EXPECT_EQ(problem_of({}), "libnccl.so.2 is NCCL of an unknown version" + rest);
}

/// A call that is done after a number of questions, on a clock that advances by a microsecond per question.
struct Poll {
  int questions = 0;
  std::vector<Nanoseconds> sleeps;
};

Poll poll(int until_done) {
  static std::function<ncclResult_t(ncclResult_t*)> answer;  // static, as a table has plain functions
  Poll poll;
  Nanoseconds now{1'000'000};
  answer = [&](ncclResult_t* state) {
    now += Nanoseconds{1000};
    *state = ++poll.questions < until_done ? ncclInProgress : ncclSuccess;
    return ncclSuccess;
  };
  NcclTable table = fake_nccl();
  table.comm_get_async_error = [](ncclComm_t, ncclResult_t* state) { return answer(state); };
  PollClock clock;
  clock.now = [&] { return now; };
  clock.sleep = [&](Nanoseconds time) {
    poll.sleeps.push_back(time);
    now += time;
  };
  Rendezvous rendezvous({"127.0.0.1", free_port(), 0, 1, Seconds{60}, Seconds{60}});
  NcclComms comms(table, rendezvous, clock);
  comms.enter(nullptr, "a call", [] { return ncclInProgress; });
  rendezvous.leave();
  return poll;
}

/// 50 questions, a microsecond apart, come before the first sleep: the 50th is the first one after 50 us.
TEST(NcclPolls, ShortCallsArePolledWithoutSleep) {
  EXPECT_EQ(poll(1).questions, 1);
  const Poll last = poll(50);
  EXPECT_EQ(last.questions, 50);
  EXPECT_TRUE(last.sleeps.empty());
}

/// After that, there is a sleep between any two questions.
TEST(NcclPolls, LongCallsArePolledWithSleeps) {
  const Poll later = poll(57);
  EXPECT_EQ(later.questions, 57);
  EXPECT_EQ(later.sleeps, std::vector<Nanoseconds>(7, Nanoseconds{20'000}));
}

TEST(NcclPolls, AFinishedCallIsNotPolled) {
  NcclTable table = fake_nccl();
  table.comm_get_async_error = [](ncclComm_t, ncclResult_t*) -> ncclResult_t {
    ADD_FAILURE() << "asked";
    return ncclSuccess;
  };
  Rendezvous rendezvous({"127.0.0.1", free_port(), 0, 1, Seconds{60}, Seconds{60}});
  NcclComms comms(table, rendezvous);
  comms.enter(nullptr, "a call", [] { return ncclSuccess; });
  rendezvous.leave();
}

}  // namespace comms_test
}  // namespace dflop::testing
