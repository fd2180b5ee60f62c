// Tests how failing runs end with every communicator.
#include <algorithm>
#include <chrono>
#include <latch>
#include <map>
#include <thread>

#include "tests/backend/contract/fixtures.hpp"
#include "tests/backend/count_down.hpp"

namespace dflop::testing {
namespace failure_test {

const RankGroup kThree{{0, 1, 2}};

using Call = std::function<void(const RankSide&)>;

/// Each of these calls waits for rank 2, which never arrives.
std::map<std::string, Call> blocking_calls() {
  return {{"receive", [](const RankSide& side) { side.receive(8, 2, "a letter"); }},
          {"all-reduce", [](const RankSide& side) { side.all_reduce(Data(8), DType::f32, kThree, "sum"); }},
          {"all-gather", [](const RankSide& side) { side.all_gather(Data(8), DType::f32, kThree, "parts"); }},
          {"reduce-scatter",
           [](const RankSide& side) { side.reduce_scatter(Data(24), DType::f32, kThree, "sum"); }}};
}

void expect_aborted(const RankSide& side, const Call& call, const std::string& name) {
  try {
    call(side);
    side.stream.synchronize();
    ADD_FAILURE() << name << " came to its end";
  } catch (const Aborted& aborted) {
    EXPECT_EQ(aborted.kind(), ErrorKind::internal);
    EXPECT_NE(aborted.message().find("the loss is NaN"), std::string::npos) << aborted.message();
  }
}

TEST_P(CommunicatorContract, AbortEndsTheRunForWaitingAndLaterRanks) {
  if (!has_ranks(3)) GTEST_SKIP();
  auto calls = blocking_calls();
  for (const auto& [blocked_in, blocked] : calls) {
    const auto body = [&, &name = blocked_in, &call = blocked](const RankSide& side) {
      if (side.rank == 2) {
        // Usually long enough for the others to block; if not, the outcome is the same.
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        side.communicator.abort("the loss is NaN");
        side.communicator.abort("a second reason, which nobody hears of");
      } else {
        expect_aborted(side, call, name);
      }
      for (const auto& [later, late] : calls) {
        if (side.rank != 2 || later != "receive") expect_aborted(side, late, later);  // not from itself
      }
      const int peer = (side.rank + 1) % 3;
      expect_aborted(
          side, [&](const RankSide& s) { s.send(Data(8), peer, "a letter"); }, "send");
    };
    // A timeout of minutes, so that it does not wake anyone first.
    for (const RankEnd& end : run(3, body, Seconds(300))) EXPECT_EQ(end.how, How::done) << end.message;
  }
}

TEST_P(CommunicatorContract, ARankThatWaitsTooLongEndsTheRunForAll) {
  if (!has_ranks(4)) GTEST_SKIP();
  std::latch over(2);  // ranks 2 and 3 have given up
  const auto ends = run(
      4,
      [&](const RankSide& side) {
        if (side.rank == 0) return;  // has ended
        if (side.rank == 1) {        // does not wait for any rank
          over.wait();
          side.send(Data(4), 0, "a letter");
          return;
        }
        const CountDown at_end(over);
        if (side.rank == 2) side.receive(8, 0, "activations of microbatch 3 to llm 1");
        if (side.rank == 3) side.all_reduce(Data(8), DType::f32, {{2, 3}}, "gradients of stage 1");
      },
      Seconds(1));
  EXPECT_EQ(ends[0].how, How::done);
  EXPECT_EQ(ends[1].how, How::aborted);
  // The first rank to time out throws the error, and the other is aborted.
  EXPECT_EQ(std::count_if(ends.begin(), ends.end(), [](const RankEnd& end) { return end.how == How::error; }),
            1);
  for (const std::size_t rank : {1, 2, 3}) {
    for (const char* part : {"rank 0 has ended", "rank 1 is not waiting",
                             "rank 2 waits for activations of microbatch 3 to llm 1 from rank 0 (",
                             "rank 3 waits for", "gradients of stage 1"}) {
      EXPECT_NE(ends[rank].message.find(part), std::string::npos)
          << "no '" << part << "' for rank " << rank << " in:\n"
          << ends[rank].message;
    }
  }
}

}  // namespace failure_test
}  // namespace dflop::testing
