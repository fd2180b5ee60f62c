#include "traces/profiler/check.hpp"

#include <fmt/format.h>

#include "tests/traces/kineto_fixtures.hpp"

namespace dflop {
namespace kineto_check_test {

using Kind = KinetoFindingKind;

std::vector<KinetoFinding> check(const std::vector<KinetoTrace>& traces) {
  return check_kineto(traces, compare_ranks(traces));
}

KinetoText rank_text(int rank) {
  return KinetoText(R"("distributedInfo": {"rank": )" + std::to_string(rank) + "},");
}

/// A sound record of one rank: two steps, each with a kernel and a collective, until 1000 us.
KinetoText sound(int rank) {
  KinetoText text = rank_text(rank);
  text.event(R"({"ph": "i", "name": "Record Window End", "ts": 1000})");
  for (int step = 0; step < 2; ++step) {
    const auto at = [&](int us) { return std::to_string(100 * step + us); };
    text.x("user_annotation", "ProfilerStep#" + std::to_string(step), at(0), "100", 1)
        .launch(2 * step, at(10))
        .launch(2 * step + 1, at(11))
        .kernel(2 * step, "gemm", at(20), "30", 7)
        .kernel(2 * step + 1, "ncclDevKernel_AllReduce_x", at(50), "40", 20, collective_args(step));
  }
  return text;
}

/// Returns the only finding in these traces.
KinetoFinding only(const std::vector<KinetoTrace>& traces) {
  const std::vector<KinetoFinding> findings = check(traces);
  std::string all;
  for (const KinetoFinding& f : findings) all += std::string(to_string(f.kind)) + ": " + f.text + "\n";
  EXPECT_EQ(findings.size(), 1u) << all;
  return findings.empty() ? KinetoFinding{} : findings.front();
}

TEST(KinetoCheck, SoundTracesHaveNoFindings) {
  EXPECT_TRUE(check({sound(0).trace()}).empty());
  EXPECT_TRUE(check({sound(0).trace("0"), sound(1).trace("1")}).empty());
  EXPECT_TRUE(check({}).empty());
}

TEST(KinetoCheck, StepsOfOtherNumbersAndCollectivesInOtherSteps) {
  const auto numbered = [](int first) {
    std::string text = sound(1).text();
    text = replaced(text, "ProfilerStep#1", fmt::format("ProfilerStep#{}", first + 1));
    return parse_kineto(replaced(text, "ProfilerStep#0", fmt::format("ProfilerStep#{}", first)), "1");
  };
  std::vector<KinetoTrace> traces = {sound(0).trace("0"), numbered(4)};
  align_steps(traces);
  const KinetoFinding f = only(traces);
  EXPECT_EQ(f.kind, Kind::different_runs);
  EXPECT_EQ(
      f.text,
      "numbers its steps 4 to 5, but by their collectives they are the steps 0 to 1 of other ranks: the "
      "numbers of the other ranks are used");
  // The second all-reduce is launched in the first step on one rank, and in the second step on the other.
  KinetoText early = rank_text(1);
  early.x("user_annotation", "ProfilerStep#0", "0", "100", 1).launch(0, "10").launch(1, "11").launch(2, "12");
  early.kernel(0, "gemm", "20", "30", 7)
      .kernel(1, "ncclDevKernel_AllReduce_x", "50", "40", 20, collective_args(0))
      .kernel(2, "ncclDevKernel_AllReduce_x", "150", "40", 20, collective_args(1));
  early.x("user_annotation", "ProfilerStep#1", "100", "100", 1)
      .launch(3, "110")
      .kernel(3, "gemm", "120", "30", 7);
  traces = {sound(0).trace("0"), early.trace("1")};
  align_steps(traces);
  EXPECT_EQ(only(traces).kind, Kind::different_runs);
  EXPECT_EQ(only(traces).text, "allreduce lies in step 0, on rank 0 in step 1");
}

TEST(KinetoCheck, AcausalKernel) {
  const KinetoFinding f = only({sound(0).kernel(9, "early", "59.5", "2").launch(9, "60").trace()});
  EXPECT_EQ(f.kind, Kind::acausal);
  EXPECT_EQ(f.event, 11u);
  EXPECT_EQ(f.place, "t.json: traceEvents[11] 'early'");
  EXPECT_NE(f.text.find("0.500 us before its launch"), std::string::npos) << f.text;
}

TEST(KinetoCheck, OverlapOnOneStream) {
  // The gemm of step 0 runs from 20 to 50 us.
  const KinetoFinding f = only({sound(0).launch(9, "45").kernel(9, "second", "46.5", "2").trace()});
  EXPECT_EQ(f.kind, Kind::overlap);
  EXPECT_EQ(f.event, 12u);
  EXPECT_NE(f.text.find("3.500 us before the end of traceEvents[4]"), std::string::npos) << f.text;
  // Another stream may overlap. Timestamps in whole microseconds are rounded, so an overlap of 1 us does not
  // count.
  EXPECT_TRUE(check({sound(0).launch(9, "45").kernel(9, "second", "46.5", "2", 8).trace()}).empty());
  EXPECT_TRUE(check({sound(0).launch(9, "45").kernel(9, "second", "49", "2").trace()}).empty());
  EXPECT_EQ(only({sound(0).launch(9, "45").kernel(9, "second", "48", "2").trace()}).kind, Kind::overlap);
}

TEST(KinetoCheck, KernelWithoutLaunchAndLaunchWithoutKernel) {
  const KinetoFinding kernel = only({sound(0).kernel(9, "orphan", "60", "2").trace()});
  EXPECT_EQ(kernel.kind, Kind::missing_launch);
  EXPECT_EQ(kernel.event, 11u);
  const KinetoFinding launch = only({sound(0).launch(9, "60").trace()});
  EXPECT_EQ(launch.kind, Kind::missing_activity);
  EXPECT_EQ(launch.event, 11u);
  // A call that starts no work needs no kernel.
  EXPECT_TRUE(
      check({sound(0).x("cuda_runtime", "cudaEventQuery", "60", "1", 1, R"("correlation": 9)").trace()})
          .empty());
}

TEST(KinetoCheck, CallsWithoutWorkMayBeCaptured) {
  const std::string graph = "CUDA graph";
  EXPECT_EQ(only({sound(0).launch(9, "60").trace()}).text.find(graph), std::string::npos);
  const KinetoFinding captured =
      only({sound(0)
                .x("cuda_runtime", "cudaStreamBeginCapture", "59", "0.5", 1, R"("correlation": 8)")
                .launch(9, "60")
                .trace()});
  EXPECT_EQ(captured.kind, Kind::missing_activity);
  EXPECT_NE(captured.text.find(graph), std::string::npos) << captured.text;
}

TEST(KinetoCheck, ValuesThatAreNotStrictJsonAreOneFinding) {
  const KinetoFinding found =
      only({sound(0).event(R"({"ph": "i", "name": "x", "ts": NaN, "args": {"y": -inf}})").trace()});
  EXPECT_EQ(found.kind, Kind::loose_json);
  EXPECT_NE(found.text.find("2 values are not strict JSON"), std::string::npos) << found.text;
}

TEST(KinetoCheck, StepWithoutKernels) {
  const KinetoFinding f = only({sound(0).x("user_annotation", "ProfilerStep#2", "200", "50", 1).trace()});
  EXPECT_EQ(f.kind, Kind::empty_step);
  EXPECT_EQ(f.place, "t.json: traceEvents[11] 'ProfilerStep#2'");
}

TEST(KinetoCheck, CutOrMissingStepsAndWorkOutsideThem) {
  const auto step = [](const std::string& number, const std::string& ts, const std::string& dur) {
    return sound(0).x("user_annotation", "ProfilerStep#" + number, ts, dur, 1);
  };
  const auto kernel = [](KinetoText text, const std::string& launch, const std::string& start) {
    return std::vector<KinetoTrace>{text.launch(9, launch).kernel(9, "k", start, "1").trace()};
  };
  const KinetoFinding skipped = only(kernel(step("3", "200", "50"), "210", "220"));
  EXPECT_EQ(skipped.kind, Kind::truncated_profile);
  EXPECT_NE(skipped.text.find("after step 1, found step 3"), std::string::npos) << skipped.text;
  const KinetoFinding cut = only(kernel(step("2", "900", "150"), "910", "920"));
  EXPECT_EQ(cut.kind, Kind::truncated_profile);
  EXPECT_NE(cut.text.find("50.000 us after the record"), std::string::npos) << cut.text;
  const KinetoFinding outside = only(kernel(sound(0), "300", "310"));
  EXPECT_EQ(outside.kind, Kind::truncated_profile);
  EXPECT_NE(outside.text.find("outside all steps"), std::string::npos) << outside.text;
}

TEST(KinetoCheck, CollectiveMissingOnARankOfItsGroup) {
  const auto further = [](KinetoText text, int rank_group_end) {
    const std::string ranks = "[0, " + std::to_string(rank_group_end) + "]";
    return text.launch(9, "160").kernel(9, "ncclDevKernel_AllReduce_x", "192", "5", 20,
                                        replaced(collective_args(2), "[0, 1]", ranks));
  };
  const KinetoFinding f = only({further(sound(0), 1).trace("0.json"), sound(1).trace("1.json")});
  EXPECT_EQ(f.kind, Kind::missing_collective);
  EXPECT_EQ(f.place, "0.json: traceEvents[12] 'ncclDevKernel_AllReduce_x'");
  EXPECT_EQ(f.text, "allreduce is missing on rank 1");
  // First case: rank 1 is not in the group, and the group's rank 5 has no trace. Second case: rank 1 is in
  // the group but has no trace.
  const KinetoFinding absent = only({further(sound(0), 5).trace("0"), sound(1).trace("1")});
  EXPECT_EQ(absent.kind, Kind::missing_rank);
  EXPECT_EQ(absent.text,
            "the run has 6 ranks by the ranks of a process group, found traces of 2; missing 2, 3, 4, 5");
  EXPECT_TRUE(check({further(sound(0), 1).trace("0")}).empty());
}

TEST(KinetoCheck, SequenceNumbersLeftOut) {
  const KinetoFinding f =
      only({sound(0)
                .launch(9, "160")
                .kernel(9, "ncclDevKernel_AllReduce_x", "192", "5", 20, collective_args(4))
                .trace()});
  EXPECT_EQ(f.kind, Kind::sequence_gap);
  EXPECT_NE(f.text.find("sequence number 4 after 1"), std::string::npos) << f.text;
}

TEST(KinetoCheck, ClocksApart) {
  // The base of rank 1 shifts all its timestamps. Collectives that are matched by time need clocks that agree
  // within 50 us. With sequence numbers they are matched and the clocks are aligned, whatever the shift.
  const auto traces = [](int us, bool numbered) {
    std::vector<KinetoTrace> both;
    for (const int rank : {0, 1}) {
      KinetoText made = numbered ? sound(rank) : rank_text(rank);
      for (int k = 0; k < 2 && !numbered; ++k) {
        const std::string at = std::to_string(10 + 300 * k);
        made.launch(k, at).kernel(k, "ncclDevKernel_AllReduce_x", at, "200", 20);
      }
      std::string text = made.text();
      if (rank == 1) text.insert(1, "\"baseTimeNanoseconds\": " + std::to_string(us * 1000) + ", ");
      both.push_back(parse_kineto(text, std::to_string(rank) + ".json"));
    }
    return both;
  };
  const KinetoFinding f = only(traces(51, false));
  EXPECT_EQ(f.kind, Kind::unaligned_clocks);
  EXPECT_EQ(f.place, "1.json");
  EXPECT_NE(f.text.find("51.000 us ahead"), std::string::npos) << f.text;
  EXPECT_NE(f.text.find("joined by time"), std::string::npos) << f.text;
  EXPECT_TRUE(check(traces(50, false)).empty());
  EXPECT_TRUE(check(traces(1'000'000, true)).empty());
  const KinetoTrace alone = rank_text(1).launch(1, "10").kernel(1, "gemm", "20", "1").trace("1.json");
  const std::vector<KinetoFinding> findings = check({sound(0).trace("0.json"), alone});
  ASSERT_EQ(findings.size(), 3u);  // two collectives are missing, and nothing aligns the clock
  EXPECT_EQ(findings[2].kind, Kind::unaligned_clocks);
}

TEST(KinetoCheck, EveryKindIsExplained) {
  for (int k = 0; k < kKinetoFindingKinds; ++k) {
    EXPECT_FALSE(to_string(static_cast<Kind>(k)).empty());
    EXPECT_FALSE(explanation(static_cast<Kind>(k)).empty());
  }
}

}  // namespace kineto_check_test
}  // namespace dflop
