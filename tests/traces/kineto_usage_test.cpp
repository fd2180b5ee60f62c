#include "traces/profiler/usage.hpp"

#include "tests/traces/kineto_fixtures.hpp"
#include "traces/files/timeline.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace kineto_usage_test {

using ns = Nanoseconds;

/// The two ranks of traces/kineto; docs/replay.md draws their times.
std::vector<KinetoTrace> two_ranks() {
  std::vector<KinetoTrace> traces;
  for (const std::string name : {"rank0.json", "rank1.json"}) {
    const std::string path = std::string(DFLOP_SOURCE_DIR) + "/traces/kineto/" + name;
    traces.push_back(parse_kineto(read_text_file(path), path));
  }
  return traces;
}

TEST(KinetoUsage, UnionsOfOverlappingWork) {
  // us:        0    10   20   30   40   50   60   70   80   90
  // stream 7   [ a (F)   ]    [ b  ]                        c: next step, at 90
  // stream 8        [ d  (B) ]              [m]
  // stream 20            [ all-reduce  ]
  // compute 0-25, 30-40: 35; communication 20-45: 25, of which 25-30 and 40-45 do not overlap: 10; copy
  // 55-60; busy 45 + 5.
  KinetoText text;
  text.x("user_annotation", "ProfilerStep#1", "100", "50", 1)
      .x("user_annotation", "ProfilerStep#2", "150", "50", 1)
      .x("user_annotation", "forward", "100", "5", 1)
      .x("user_annotation", "backward", "105", "5", 1)
      .launch(1, "101")
      .launch(2, "106")
      .launch(3, "115")
      .launch(4, "116")
      .launch(5, "117")
      .launch(6, "151")
      .kernel(1, "a", "200", "20", 7)
      .kernel(2, "d", "210", "15", 8)
      .kernel(3, "ncclDevKernel_AllReduce_x", "220", "25", 20)
      .kernel(4, "b", "230", "10", 7)
      .x("gpu_memcpy", "m", "255", "5", 8, R"("device": 0, "stream": 8, "correlation": 5, "bytes": 1)")
      .kernel(6, "c", "290", "4", 7);
  const std::vector<KinetoStepUsage> usage = step_usage(text.trace());
  ASSERT_EQ(usage.size(), 2u);
  EXPECT_EQ(usage[0].window.begin, ns(100'000));
  EXPECT_EQ(usage[0].window.end, ns(190'000));
  EXPECT_EQ(usage[0].host, ns(50'000));
  EXPECT_EQ(usage[0].busy, ns(50'000));
  EXPECT_EQ(usage[0].compute, ns(35'000));
  EXPECT_EQ(usage[0].communication, ns(25'000));
  EXPECT_EQ(usage[0].exposed, ns(10'000));
  EXPECT_EQ(usage[0].copy, ns(5'000));
  EXPECT_EQ(usage[0].idle, ns(40'000));
  EXPECT_EQ(usage[0].phases[0], ns(20'000));
  EXPECT_EQ(usage[0].phases[1], ns(15'000));
  EXPECT_EQ(usage[0].phases[3], ns(10'000));
  EXPECT_EQ(usage[0].activities, 5);
  EXPECT_EQ(usage[1].busy, ns(4'000));
  EXPECT_EQ(usage[1].idle, ns(0));
  const std::vector<KinetoStreamUsage> streams = stream_usage(text.trace());
  ASSERT_EQ(streams.size(), 3u);
  EXPECT_EQ(streams[0].compute, ns(34'000));
  EXPECT_EQ(streams[1].copies, 1);
  EXPECT_EQ(streams[2].communication, ns(25'000));
}

TEST(KinetoUsage, AKernelThatReachesIntoTheNextStepCountsInBoth) {
  KinetoText text;
  text.x("user_annotation", "ProfilerStep#1", "0", "50", 1)
      .x("user_annotation", "ProfilerStep#2", "50", "50", 1)
      .launch(1, "1")
      .launch(2, "51")
      .kernel(1, "a", "10", "60", 7)
      .kernel(2, "b", "60", "20", 8);
  const std::vector<KinetoStepUsage> usage = step_usage(text.trace());
  EXPECT_EQ(usage[0].busy, ns(50'000));  // 10 to 60, where the next step begins
  EXPECT_EQ(usage[1].busy, ns(20'000));  // 60 to 80
}

TEST(KinetoUsage, WithoutStepsOneWindowHoldsAll) {
  const std::vector<KinetoStepUsage> usage =
      step_usage(KinetoText().kernel(1, "a", "10", "5").kernel(2, "b", "20", "5").trace());
  ASSERT_EQ(usage.size(), 1u);
  EXPECT_EQ(usage[0].window.step, -1);
  EXPECT_EQ(usage[0].idle, ns(5'000));
}

TEST(KinetoUsage, GroupsOfTheTwoRanks) {
  const std::vector<KinetoTrace> traces = two_ranks();
  const KinetoRanks ranks = compare_ranks(traces);
  EXPECT_EQ(ranks.clocks[1].offset, ns(250'000));
  // Two steps. Rank 0 spends 270 us to receive what rank 1 sends in 50, and 80 us to send what rank 1
  // receives in 170.
  const std::vector<KinetoGroupUsage> groups = group_usage(traces[0], ranks.shares[0]);
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].name, "recv");
  EXPECT_EQ(groups[0].group, "pp");
  EXPECT_EQ(groups[0].count, 2);
  EXPECT_EQ(groups[0].matched, 2);
  EXPECT_EQ(groups[0].time, ns(540'000));
  EXPECT_EQ(groups[0].transfer, ns(100'000));
  EXPECT_EQ(groups[0].wait, ns(440'000));
  EXPECT_EQ(groups[0].bytes, Bytes{4'000'000});
  EXPECT_EQ(groups[1].transfer, ns(160'000));
  EXPECT_EQ(groups[1].wait, ns(0));
}

TEST(KinetoTimeline, TheTwoRanks) {
  const std::vector<KinetoTrace> traces = two_ranks();
  const std::vector<Timeline> timelines = to_timelines(traces, compare_ranks(traces));
  ASSERT_EQ(timelines.size(), 2u);
  const Timeline& first = timelines[0];
  // Rank 1's first copy begins at 4 us, 1 us before rank 0's, whose next step begins at 1005 us.
  EXPECT_EQ(first.makespan, ns(1'001'000));
  ASSERT_EQ(first.groups.size(), 2u);
  EXPECT_EQ(first.groups[0].busy, ns(350'000));    // 100 + 200 + 50
  EXPECT_EQ(first.groups[0].wait, ns(450'000));    // 80 + 270 + 100
  EXPECT_EQ(first.groups[0].bubble, ns(201'000));  // the rest
  ASSERT_EQ(first.spans.size(), 12u);
  // Rank 0: forward at 20 us, which is 16 after rank 1's first copy.
  const Span forward{0, Stream::compute, Op::forward, 0, 0, ns(16'000), ns(100'000), {}, -1};
  EXPECT_EQ(first.spans[0], forward);
  const Span& send = first.spans[1];
  const Span& receive = first.spans[6];
  EXPECT_EQ(send.op, Op::send);
  EXPECT_EQ(send.bytes, Bytes{2'000'000});
  EXPECT_EQ(receive.op, Op::receive);
  EXPECT_EQ(receive.rank, 1);
  EXPECT_EQ(receive.start, ns(26'000));
  EXPECT_EQ(receive.duration, ns(170'000));
  EXPECT_EQ(send.message, receive.message);
  EXPECT_GE(send.message, 0);
  EXPECT_EQ(first.spans[4].op, Op::all_reduce);
  EXPECT_EQ(first.spans[4].stream, Stream::collective);
  EXPECT_EQ(first.spans[5].op, Op::optimizer_step);
  // The file's own reader accepts the timelines.
  EXPECT_EQ(parse_timelines(to_json(TimelineFile{timelines}), "t.json").iterations, timelines);
}

TEST(KinetoTimeline, RunsOfOnePhaseAreSpans) {
  // On stream 7: F F | B | other | B | F. The first two make one span; the other kernel makes none and
  // separates the B's.
  KinetoText text;
  const std::vector<std::pair<std::string, int>> kernels = {
      {"forward", 10}, {"forward", 22}, {"backward", 30}, {"x", 40}, {"backward", 50}, {"forward", 60}};
  int i = 0;
  for (const auto& [name, start] : kernels) {
    const auto host = std::to_string(2 * i);
    text.x("user_annotation", name, host, "2", 1).launch(i, host).kernel(i, "k", std::to_string(start), "8");
    ++i;
  }
  text.kernel(7, "k", "12", "3", 8);  // another stream
  const std::vector<KinetoTrace> traces = {text.trace()};
  const std::vector<Timeline> timelines = to_timelines(traces, compare_ranks(traces));
  ASSERT_EQ(timelines.size(), 1u);
  const auto span = [](Op op, int microbatch, int start, int duration) {
    return Span{0, Stream::compute, op, 0, microbatch, ns(start * 1000), ns(duration * 1000), {}, -1};
  };
  // Times count from the first kernel, at 10 us.
  EXPECT_EQ(timelines[0].spans,
            (std::vector<Span>{span(Op::forward, 0, 0, 20), span(Op::backward, 0, 20, 8),
                               span(Op::backward, 1, 40, 8), span(Op::forward, 1, 50, 8)}));
}

TEST(KinetoTimeline, OverlapsOnAStreamAreTrimmed) {
  KinetoText text;
  text.x("user_annotation", "forward", "0", "2", 1)
      .x("user_annotation", "backward", "2", "2", 1)
      .launch(1, "0")
      .launch(2, "2")
      .kernel(1, "k", "10", "20")
      .kernel(2, "k", "25", "10")
      .kernel(3, "ncclDevKernel_AllReduce_x", "10", "10", 20)
      .kernel(4, "ncclDevKernel_AllReduce_x", "15", "4", 21);
  const std::vector<KinetoTrace> traces = {text.trace()};
  const Timeline timeline = to_timelines(traces, compare_ranks(traces)).at(0);
  ASSERT_EQ(timeline.spans.size(), 4u);
  EXPECT_EQ(timeline.spans[3].op, Op::backward);
  EXPECT_EQ(timeline.spans[3].start, ns(20'000));
  EXPECT_EQ(timeline.spans[3].duration, ns(5'000));
  EXPECT_EQ(timeline.spans[2].start, ns(10'000));  // the second all-reduce, inside the first
  EXPECT_EQ(timeline.spans[2].duration, ns(0));
}

TEST(KinetoTimeline, ContradictionsAreRejected) {
  const auto convert = [](const std::vector<KinetoTrace>& traces) {
    return to_timelines(traces, compare_ranks(traces));
  };
  const KinetoTrace good = KinetoText().kernel(1, "k", "10", "1").trace("a.json");
  expect_refused(
      [&] {
        convert({good, KinetoText().kernel(1, "k", "10", "1").trace("b.json")});
      },
      "b.json", {"rank 0 again"});
  expect_refused([&] { convert({KinetoText("").kernel(1, "k", "10", "1").trace("c.json")}); }, "c.json",
                 {"distributedInfo.rank"});
  expect_refused([&] { convert({KinetoText().launch(1, "10").trace("d.json")}); }, "d.json", {"a step"});
}

}  // namespace kineto_usage_test
}  // namespace dflop
