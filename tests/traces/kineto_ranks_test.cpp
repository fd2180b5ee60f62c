#include "traces/profiler/ranks.hpp"

#include <fmt/format.h>

#include "tests/traces/kineto_fixtures.hpp"

namespace dflop {
namespace kineto_ranks_test {

using ns = Nanoseconds;

constexpr const char* kAllReduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)";
constexpr const char* kSendRecv = "ncclDevKernel_SendRecv(x)";

KinetoText rank_text(int rank) {
  return KinetoText(R"("baseTimeNanoseconds": 1700000000000000000, "distributedInfo": {"rank": )" +
                    std::to_string(rank) + "},");
}

std::string message_args(const std::string& direction) {
  return R"(, "dtype": "Float", "In msg nelems": 1000, "Out msg nelems": 1000, "Group size": 4,
             "Process Group Name": "pp", "Process Group Ranks": "[0, 1, 2, 3]", )" +
         direction;
}

TEST(KinetoRanks, ClocksByTheMedianOfEndDifferences) {
  // Rank 1's clock is 300 us ahead. Its ends are 299, 300 and 301 us later. One end, of a kernel that the
  // profiler timestamped wrongly, is 9 ms later. The median of 299, 300, 301, 9000 (the lower middle) is 300;
  // the mean is not.
  KinetoText first = rank_text(0);
  KinetoText second = rank_text(1);
  const double late[] = {299, 300, 301, 9000};
  for (int i = 0; i < 4; ++i) {
    const double start = 1000.0 * i;
    first.kernel(i, kAllReduce, std::to_string(start), "50", 20, collective_args(i));
    second.kernel(i, kAllReduce, std::to_string(start + 10 + late[i]), "40", 20, collective_args(i));
  }
  const std::vector<KinetoTrace> traces = {first.trace("0.json"), second.trace("1.json")};
  const KinetoRanks ranks = compare_ranks(traces);
  EXPECT_EQ(ranks.clocks[0].offset, ns(0));
  EXPECT_EQ(ranks.clocks[1].offset, ns(300'000));
  EXPECT_EQ(ranks.clocks[1].matches, 4u);
  EXPECT_EQ(ranks.clocks[1].spread, ns(1'000));  // of 1, 0, 1, 8700
  // Both second kernels end at 1050 us on the common clock, whose origin is the first event: at 0 us.
  for (std::size_t t = 0; t < 2; ++t) {
    EXPECT_EQ(ranks.aligned(traces, t, traces[t].activities[1].end()), ns(1'050'000));
  }
}

TEST(KinetoRanks, TheLastRankShowsTheTransferAndTheOthersWait) {
  // Rank 1's clock is 300 us ahead. In true time rank 0 sends from 100 to 180 us. Rank 1 was ready at 20, so
  // its receive runs from 20 to 180: 80 us of transfer, 80 us of waiting inside the receive.
  // The all-reduce ends at 500 on both; it began at 400 on rank 0 and at 430 on rank 1: 70 and 30.
  KinetoText first = rank_text(0);
  first.kernel(1, kSendRecv, "100", "80", 20, message_args(R"("Collective name": "send", "Dst Rank": 1)"))
      .kernel(2, kAllReduce, "400", "100", 21, collective_args(8));
  KinetoText second = rank_text(1);
  second.kernel(1, kSendRecv, "320", "160", 20, message_args(R"("Collective name": "recv", "Src Rank": 0)"))
      .kernel(2, kAllReduce, "730", "70", 21, collective_args(8));
  const KinetoRanks ranks = compare_ranks({first.trace("0.json"), second.trace("1.json")});
  EXPECT_EQ(ranks.clocks[1].offset, ns(300'000));
  EXPECT_EQ(ranks.shares[0][0].transfer, ns(80'000));
  EXPECT_EQ(ranks.shares[1][0].transfer, ns(80'000));
  EXPECT_EQ(ranks.shares[0][1].transfer, ns(70'000));
  EXPECT_EQ(ranks.shares[1][1].transfer, ns(70'000));
}

TEST(KinetoRanks, ASingleRankDoesNotRevealTheTransfer) {
  const KinetoRanks ranks =
      compare_ranks({rank_text(0).kernel(1, kAllReduce, "1", "2", 20, collective_args(1)).trace()});
  EXPECT_EQ(ranks.shares[0][0].transfer, std::nullopt);
  EXPECT_EQ(ranks.exchanges.at(0).ends.size(), 1u);
}

// One of three ranks, the first, numbers its steps 7 and 8; the others number the same steps 6 and 7.
TEST(KinetoRanks, StepsAreNumberedAsMostRanksDo) {
  std::vector<KinetoTrace> traces;
  for (int rank = 0; rank < 3; ++rank) {
    KinetoText text = rank_text(rank);
    for (int step = 0; step < 2; ++step) {
      text.x("user_annotation", fmt::format("ProfilerStep#{}", 6 + step + (rank == 0 ? 1 : 0)),
             fmt::format("{}", 100 * step), "90", 1);
      text.launch(step, fmt::format("{}", 100 * step + 10));
      text.kernel(step, kAllReduce, fmt::format("{}", 100 * step + 20), "10", 20,
                  replaced(collective_args(step), "[0, 1]", "[0, 1, 2]"));
    }
    traces.push_back(text.trace(fmt::format("{}.json", rank)));
  }
  align_steps(traces);
  EXPECT_EQ(traces[0].renumbered, 1);
  EXPECT_EQ(traces[1].renumbered, 0);
  for (const KinetoTrace& trace : traces) {
    EXPECT_EQ(trace.steps[0].number, 6);
    EXPECT_EQ(trace.steps[1].number, 7);
  }
}

TEST(KinetoRanks, MessagesAreJoinedByDirectionAndOrderWithinAStep) {
  // Rank 0 sends a and b to rank 1, and c to rank 2; rank 1 receives two. Rank 0's record begins a step
  // earlier, so the n-th send of the record is not the n-th receive.
  const std::string to_1 = message_args(R"("Collective name": "send", "Dst Rank": 1)");
  const std::string to_2 = message_args(R"("Collective name": "send", "Dst Rank": 2)");
  const std::string from_0 = message_args(R"("Collective name": "recv", "Src Rank": 0)");
  KinetoText first = rank_text(0);
  first.x("user_annotation", "ProfilerStep#4", "0", "100", 1)
      .x("user_annotation", "ProfilerStep#5", "100", "100", 1)
      .kernel(1, kSendRecv, "10", "5", 20, to_1)
      .kernel(2, kSendRecv, "110", "5", 20, to_1)
      .kernel(3, kSendRecv, "120", "5", 21, to_2)
      .kernel(4, kSendRecv, "130", "5", 20, to_1);
  KinetoText second = rank_text(1);
  second.x("user_annotation", "ProfilerStep#5", "100", "100", 1)
      .kernel(1, kSendRecv, "105", "10", 20, from_0)
      .kernel(2, kSendRecv, "128", "7", 20, from_0);
  const KinetoRanks ranks = compare_ranks({first.trace("0.json"), second.trace("1.json")});
  const auto exchange = [&](std::size_t trace, std::size_t i) { return ranks.shares[trace][i].exchange; };
  EXPECT_EQ(exchange(0, 1), exchange(1, 0));
  EXPECT_EQ(exchange(0, 3), exchange(1, 1));
  EXPECT_EQ(ranks.exchanges[exchange(0, 0)].ends.size(), 1u);
  EXPECT_EQ(ranks.exchanges[exchange(0, 2)].ends.size(), 1u);
  EXPECT_EQ(ranks.clocks[1].offset, ns(0));
}

TEST(KinetoRanks, ClocksCarryOverRanksThatShareNothingWithTheFirst) {
  // 0 and 1 share group "0", 1 and 2 share group "x". Rank 1 is 100 us ahead of 0, rank 2 is 30 us behind 1.
  const auto other_group = [](int sequence) {
    return replaced(replaced(collective_args(sequence), "\"0\"", "\"x\""), "[0, 1]", "[1, 2]");
  };
  KinetoText first = rank_text(0).kernel(1, kAllReduce, "100", "10", 20, collective_args(1));
  KinetoText second = rank_text(1).kernel(1, kAllReduce, "205", "5", 20, collective_args(1));
  second.kernel(2, kAllReduce, "300", "20", 20, other_group(1));
  KinetoText third = rank_text(2).kernel(1, kAllReduce, "280", "10", 20, other_group(1));
  // The third trace is given before the second, so it can only be aligned in the second round.
  const KinetoRanks ranks = compare_ranks({first.trace("0"), third.trace("2"), second.trace("1")});
  EXPECT_EQ(ranks.clocks[2].offset, ns(100'000));
  EXPECT_EQ(ranks.clocks[1].offset, ns(70'000));
}

TEST(KinetoRanks, WithoutSequenceNumbersKernelsThatOverlapAreJoinedByTheirEnds) {
  // Each record lacks kernels that the other has: matching by count would join 1 with 1 and 2 with 2.
  KinetoText first = rank_text(0);
  first.kernel(1, kAllReduce, "100", "50", 20).kernel(2, kAllReduce, "300", "50", 20);
  KinetoText second = rank_text(1);
  second.kernel(1, kAllReduce, "310", "41", 20).kernel(2, kAllReduce, "500", "50", 20);
  const KinetoRanks ranks = compare_ranks({first.trace("0"), second.trace("1")});
  EXPECT_EQ(ranks.exchanges.size(), 3u);
  EXPECT_EQ(ranks.shares[0][0].transfer, std::nullopt);
  EXPECT_EQ(ranks.shares[0][1].transfer, ns(41'000));
  EXPECT_EQ(ranks.shares[1][0].transfer, ns(41'000));
  EXPECT_EQ(ranks.clocks[1].offset, ns(1'000));  // ends at 350 and 351
}

}  // namespace kineto_ranks_test
}  // namespace dflop
