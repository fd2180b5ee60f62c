// Pipeline ranges in PyTorch-profiler traces become replayable timelines, or findings.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "costmodel/recorded/recorded.hpp"
#include "sim/engine.hpp"
#include "tests/traces/kineto_fixtures.hpp"
#include "traces/profiler/pipeline.hpp"
#include "traces/profiler/ranges.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace kineto_pipeline_test {

using Kind = KinetoRangeKind;

Nanoseconds ms(double value) {
  return Nanoseconds(std::llround(value * 1e6));
}

std::string us(double milliseconds) {
  return fmt::format("{:.3f}", milliseconds * 1e3);
}

std::string header(int rank, int world, double clock_ms = 0) {
  return fmt::format(R"("baseTimeNanoseconds": {}, "distributedInfo": {{"rank": {}, "world_size": {},
    "pg_config": [{{"pg_name": "0", "pg_size": {}, "ranks": [{}]}}]}},)",
                     1'000'000'000 + ms(clock_ms).count(), rank, world, world,
                     world == 3 ? "0, 1, 2" : "0, 1");
}

/// A rank's trace: ranges and gloo messages, as torch.profiler writes them. Times are milliseconds.
struct RankText {
  KinetoText text;
  int stage = 0;

  explicit RankText(int rank, int world = 2, double clock_ms = 0) : text(header(rank, world, clock_ms)) {
    // The earliest event of both traces, so that both have the same time 0.
    text.x("cpu_op", "aten::empty", us(0), us(0.001), 1);
  }
  RankText& range(const std::string& name, double start, double end) {
    text.x("user_annotation", name, us(start), us(end - start), 1);
    return *this;
  }
  /// A message of 100 floats. Its call takes 10 us, and it has arrived, or has left, at `end`.
  RankText& message(bool is_send, int peer, double start, double end) {
    text.x("cpu_op", is_send ? "c10d::send" : "c10d::recv_", us(start), us(0.01), 1,
           fmt::format(R"("Concrete Inputs": ["", "", "{}", "0"], "Input type": ["TensorList", "", "", ""])",
                       peer));
    text.x("user_annotation", is_send ? "gloo:send" : "gloo:recv", us(start + 0.005), us(end - start - 0.005),
           1, R"("Input Dims": [[100]], "Input type": ["float"])");
    return *this;
  }
  /// A sum of 1,000 floats, called at `call`. gloo takes part in it from `start` to `end`.
  RankText& reduction(double call, double start, double end) {
    text.x("cpu_op", "c10d::allreduce_", us(call), us(0.01), 9,
           R"("Input Dims": [[[1000]], [], []], "Input type": ["TensorList", "", ""])");
    text.x("user_annotation", "gloo:all_reduce", us(start), us(end - start), 33,
           R"("Input Dims": [[1000]], "Input type": ["float"])");
    return *this;
  }
  KinetoTrace trace(const std::string& file) const { return text.trace(file); }
};

/// One microbatch through two stages. Forward 0 ends at 10 and its output arrives at 11. Rank 1 runs forward
/// until 22 and backward until 29. The gradient arrives at 30, and rank 0 computes until 40.
std::vector<RankText> two_ranks(double clock_ms = 0) {
  RankText first(0);
  first.range("PP:0F0", 0, 10).message(true, 1, 10, 12).range("PP:0SEND_F0", 9.999, 10.02);
  first.message(false, 1, 10.5, 30).range("PP:0RECV_B0", 10.499, 10.52).range("PP:0B0", 12, 40);
  RankText second(1, 2, clock_ms);
  second.message(false, 0, 0.5, 11).range("PP:1RECV_F0", 0.499, 0.52).range("PP:1F0", 1, 22);
  second.range("PP:1B0", 22, 29).message(true, 0, 29, 31).range("PP:1SEND_B0", 28.999, 29.02);
  return {first, second};
}

PipelineImport import_all(const std::vector<KinetoTrace>& traces) {
  return import_pipeline(traces, compare_ranks(traces));
}

PipelineImport import_all(const std::vector<RankText>& texts) {
  std::vector<KinetoTrace> traces;
  for (const RankText& text : texts) traces.push_back(text.trace(fmt::format("rank{}.json", traces.size())));
  return import_all(traces);
}

Timeline replayed(const Timeline& recording) {
  const RecordedProgram program = recorded_program(recording);
  return simulate(program.program, program.costs, Detail::usage);
}

std::string kinds_of(const PipelineImport& import) {
  std::set<std::string> kinds;
  for (const KinetoFinding& finding : import.findings) kinds.emplace(to_string(finding.kind));
  return fmt::format("{}", fmt::join(kinds, ", "));
}

TEST(KinetoRange, NamesAreRead) {
  const auto read = [](const char* name) {
    const auto range = parse_range(name);
    if (!range) return std::string("none");
    return fmt::format("{} {} {} {}", to_string(range->kind), range->stage, range->microbatch,
                       range->peer.value_or(-1));
  };
  EXPECT_EQ(read("PP:0F0"), "forward 0 0 -1");
  EXPECT_EQ(read("PP:12B345"), "backward 12 345 -1");
  EXPECT_EQ(read("PP:3I1"), "backward_input 3 1 -1");
  EXPECT_EQ(read("PP:3W1"), "backward_weight 3 1 -1");
  EXPECT_EQ(read("PP:1SEND_F2"), "send_forward 1 2 -1");
  EXPECT_EQ(read("PP:1RECV_B2"), "receive_backward 1 2 -1");
  EXPECT_EQ(read("PP:1WAIT_SEND_F2"), "wait 1 2 -1");
  EXPECT_EQ(read("PP:1REDUCE_GRAD"), "all_reduce 1 -1 -1");
  EXPECT_EQ(read("dflop:forward stage=2 mb=5"), "forward 2 5 -1");
  EXPECT_EQ(read("dflop:send_backward mb=5 stage=2 peer=7"), "send_backward 2 5 7");
  EXPECT_EQ(read("dflop:all_reduce stage=2"), "all_reduce 2 -1 -1");
  EXPECT_EQ(read("dflop:optimizer_step"), "optimizer_step -1 -1 -1");
  EXPECT_EQ(read("dflop:reshard_send stage=0 mb=1 peer=2 msg=9"), "reshard_send 0 1 2");
  EXPECT_EQ(parse_range("dflop:reshard_send stage=0 mb=1 peer=2 msg=9")->message, 9);
  EXPECT_EQ(read("dflop:all_reduce_wait stage=3 msg=1"), "all_reduce_wait 3 -1 -1");
  for (const char* bad :
       {"PP:", "PP:F0", "PP:1", "PP:1F", "PP:1UNSHARD", "PP:99999999999F0", "PP:65536F0", "PP:1Q2",
        "dflop:", "dflop:forwards stage=1 mb=0", "dflop:forward stage=1", "dflop:forward mb=1",
        "dflop:forward stage=-1 mb=0", "dflop:forward stage=1 mb=0 rank=3",
        "dflop:forward stage=1 stage=2 mb=0", "dflop:forward stage", "ForwardPass", ""}) {
    EXPECT_EQ(read(bad), "none") << bad;
  }
  EXPECT_TRUE(is_other_action("PP:1UNSHARD"));
  EXPECT_FALSE(is_other_action("PP:1F"));
}

TEST(KinetoPipeline, WaitsDoNotCountAsCompute) {
  const PipelineImport import = import_all(two_ranks());
  ASSERT_EQ(import.steps.size(), 1u) << kinds_of(import);
  const PipelineStep& step = import.steps[0];
  EXPECT_EQ(step.messages, 2);
  EXPECT_EQ(step.known, 2) << "both receivers were waiting";
  EXPECT_EQ(step.typical, ms(1));
  EXPECT_EQ(step.timeline.makespan, ms(40));
  EXPECT_EQ(step.timeline.groups[0].busy, ms(10 + 10));
  EXPECT_EQ(step.timeline.groups[1].busy, ms(11 + 7));
  EXPECT_EQ(step.timeline.spans[1].bytes, Bytes{400}) << "100 floats";
  // 10 forward, 1 for the message, 11 and 7, 1 back, 10.
  EXPECT_EQ(replayed(step.timeline).makespan, ms(40));
}

// The clock of rank 1 is 5 ms behind, so its messages arrive before they are sent.
TEST(KinetoPipeline, ClocksAreAlignedByMessages) {
  const PipelineImport import = import_all(two_ranks(-5));
  ASSERT_EQ(import.steps.size(), 1u) << kinds_of(import);
  EXPECT_EQ(import.steps[0].timeline.makespan, ms(40));
  EXPECT_EQ(import.steps[0].typical, ms(1));
}

// Two microbatches. The second message was sent at 20 and waited for late, at 33, so its arrival time is
// unknown. The 1 ms of the first message, for which rank 1 had waited, counts.
TEST(KinetoPipeline, ALateReceiveDoesNotRevealTheArrival) {
  RankText first(0);
  first.range("PP:0F0", 0, 10).message(true, 1, 10, 12);
  first.range("PP:0F1", 10.1, 20).message(true, 1, 20, 34);
  first.message(false, 1, 20.5, 54).range("PP:0B0", 21, 60);
  first.message(false, 1, 60.1, 60.9).range("PP:0B1", 60.8, 70);
  RankText second(1);
  second.message(false, 0, 0.5, 11).range("PP:1F0", 1, 32.9);
  second.message(false, 0, 33, 33.05).range("PP:1F1", 33.04, 43);
  second.range("PP:1B0", 43, 53).message(true, 0, 53, 55);
  second.range("PP:1B1", 53.1, 58).message(true, 0, 58, 61);
  const PipelineImport import = import_all({first, second});
  ASSERT_EQ(import.steps.size(), 1u) << kinds_of(import);
  const PipelineStep& step = import.steps[0];
  EXPECT_EQ(step.messages, 4);
  EXPECT_EQ(step.known, 2);
  EXPECT_EQ(step.typical, ms(1));
  for (const Span& span : step.timeline.spans) {
    if (span.op == Op::send) {
      EXPECT_LE(span.duration, ms(1)) << span.microbatch;
    }
  }
  EXPECT_EQ(step.timeline.makespan, ms(70));
}

TEST(KinetoPipeline, MessagesWithoutCallsTakeTheirRanges) {
  RankText first(0);
  first.range("dflop:forward stage=0 mb=0", 0, 10).range("dflop:send_forward stage=0 mb=0 peer=1", 10, 10.1);
  first.range("dflop:receive_backward stage=0 mb=0 peer=1", 10.1, 30)
      .range("dflop:backward stage=0 mb=0", 30, 40);
  first.range("dflop:all_reduce stage=0", 40, 45).range("dflop:optimizer_step", 45, 46);
  RankText second(1);
  second.range("dflop:receive_forward stage=1 mb=0 peer=0", 0, 11)
      .range("dflop:forward stage=1 mb=0", 11, 22);
  second.range("dflop:backward stage=1 mb=0", 22, 29)
      .range("dflop:send_backward stage=1 mb=0 peer=0", 29, 29.1);
  const PipelineImport import = import_all({first, second});
  ASSERT_EQ(import.steps.size(), 1u) << kinds_of(import);
  EXPECT_EQ(import.steps[0].known, 2);
  // A reduction over one rank is ignored; the optimizer follows when it would have ended.
  EXPECT_EQ(import.steps[0].timeline.makespan, ms(46));
}

/// Two replicas of a stage, whose reductions meet.
std::vector<RankText> two_replicas() {
  std::vector<RankText> ranks;
  for (int r = 0; r < 2; ++r) {
    ranks.emplace_back(r);
    ranks.back()
        .range("dflop:forward stage=0 mb=0", 0, 10 + 5 * r)
        .range("dflop:backward stage=0 mb=0", 15, 30 + r);
    ranks.back().range("dflop:all_reduce stage=0", 31 + r, 35).range("dflop:optimizer_step", 35, 36);
  }
  return ranks;
}

TEST(KinetoPipeline, ReductionsMatchByStageAndOrder) {
  const PipelineImport import = import_all(two_replicas());
  ASSERT_EQ(import.steps.size(), 1u) << kinds_of(import);
  const Timeline& timeline = import.steps[0].timeline;
  EXPECT_EQ(timeline.groups[1].dp_rank, 1);
  // The later replica enters at 32, and both end at 35.
  const RecordedProgram program = recorded_program(timeline);
  ASSERT_EQ(program.costs.collective.size(), 1u);
  EXPECT_EQ(program.costs.collective[0], ms(3));
}

// Two stages that share no rank meet in the sum of all squared gradients, which both identify by the same
// number. Rank 1 arrives at 32, rank 0 at 42, and both end at 45.
TEST(KinetoPipeline, SumsOfSeveralStagesMatchByNumber) {
  std::vector<RankText> ranks = two_ranks();
  for (int r = 0; r < 2; ++r) {
    ranks[r]
        .range(fmt::format("dflop:all_reduce stage={} msg=7", r), r == 0 ? 42 : 32, 45)
        .reduction(r == 0 ? 42 : 32, r == 0 ? 42 : 32, 45);
    ranks[r].range(fmt::format("dflop:optimizer_step stage={}", r), 45, 46);
  }
  const PipelineImport import = import_all(ranks);
  ASSERT_EQ(import.steps.size(), 1u) << kinds_of(import);
  const RecordedProgram program = recorded_program(import.steps[0].timeline);
  ASSERT_EQ(program.program.collectives.size(), 1u);
  EXPECT_EQ(program.program.collectives[0].groups, (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(program.costs.collective[0], ms(3)) << "from 42, when both are there";
}

/// A message as in the loop of dflop.torch: the call is in a range that gives everything but the direction.
/// `asked` is when a receive was called, possibly long before.
void reshard(RankText& rank, bool is_send, int microbatch, int peer, int number, double start, double end,
             double asked = -1) {
  rank.message(is_send, peer, asked < 0 ? start + 0.001 : asked, end);
  rank.range(fmt::format("dflop:{} stage={} mb={} peer={} msg={}",
                         is_send ? "reshard_send" : "reshard_receive", rank.stage, microbatch, peer, number),
             start, is_send ? start + 0.05 : end + 0.001);
}

// One encoder rank feeds both replicas of the LLM with messages of the same microbatch and receives both
// gradients. It calls the second receive at once but waits for it long after its arrival. The typical time, 1
// ms, comes from the messages that it waited for.
TEST(KinetoPipeline, ReshardsMatchByNumber) {
  RankText encoder(0, 3);
  encoder.range("dflop:forward stage=0 mb=0", 0, 10);
  reshard(encoder, true, 0, 1, 0, 10, 11);
  reshard(encoder, true, 0, 2, 1, 10.1, 11.1);
  reshard(encoder, false, 0, 1, 2, 10.2, 41.1);
  reshard(encoder, false, 0, 2, 3, 41.11, 41.12, 10.15);
  encoder.range("dflop:backward stage=0 mb=0", 41.2, 50);
  std::vector<RankText> ranks = {encoder};
  for (int r = 1; r < 3; ++r) {
    RankText llm(r, 3);
    llm.stage = 1;
    const double here = 10.9 + 0.1 * r;
    reshard(llm, false, 0, 0, r - 1, 0.5, here);
    llm.range("dflop:forward stage=1 mb=0", here + 0.01, 20);
    const double sent = r == 1 ? 40 : 30;
    llm.range("dflop:backward stage=1 mb=0", 20.1, sent);
    reshard(llm, true, 0, 0, r + 1, sent, sent + 1);
    ranks.push_back(llm);
  }
  const PipelineImport import = import_all(ranks);
  ASSERT_EQ(import.steps.size(), 1u) << kinds_of(import);
  const PipelineStep& step = import.steps[0];
  EXPECT_EQ(step.messages, 4);
  EXPECT_EQ(step.known, 3);
  std::vector<std::string> order;
  for (const Span& span : step.timeline.spans) {
    if (span.rank == 0) order.emplace_back(to_string(span.op));
    if (is_send(span.op)) {
      EXPECT_LT(span.duration, ms(1.2)) << "also of the gradient that came at 31 and was waited for at 41";
    }
  }
  EXPECT_EQ(order, (std::vector<std::string>{"forward", "reshard_send", "reshard_send", "reshard_receive",
                                             "reshard_receive", "backward"}));
  EXPECT_NEAR(Seconds(replayed(step.timeline).makespan).count(), 0.050, 0.0002);
}

// Two replicas begin their reductions during the last backward, as hooks do, and wait for them after it. gloo
// sums on its own thread from 25 and 27 to 29.
TEST(KinetoPipeline, ReductionsOverlapWithTheLastBackward) {
  std::vector<RankText> ranks;
  for (int r = 0; r < 2; ++r) {
    RankText rank(r);
    rank.range("dflop:forward stage=0 mb=0", 0, 10).range("dflop:all_reduce_start stage=0", 10, 10.01);
    rank.range("dflop:backward stage=0 mb=0", 10.02, 28 + r).reduction(24.9 + 2 * r, 25 + 2 * r, 29);
    rank.range("dflop:all_reduce_wait stage=0", 28.1 + r, 29.2).range("dflop:optimizer_step", 29.2, 30);
    ranks.push_back(rank);
  }
  const PipelineImport import = import_all(ranks);
  ASSERT_EQ(import.steps.size(), 1u) << kinds_of(import);
  const Timeline& timeline = import.steps[0].timeline;
  const RecordedProgram program = recorded_program(timeline);
  ASSERT_EQ(program.costs.collective.size(), 1u);
  EXPECT_EQ(program.costs.collective[0], ms(2)) << "from 27, when both are there";
  EXPECT_EQ(program.program.collectives[0].bytes, Bytes{4000});
  EXPECT_NEAR(Seconds(replayed(timeline).makespan).count(), 0.030, 0.0003);
  EXPECT_EQ(timeline.spans[1].op, Op::all_reduce_start);
}

// Two replicas with two stages on each rank. The last stage's backward comes first, and its sum runs from 28
// to 33. The first stage's sum runs from 45 to 48, and the optimizer ends at 50.
TEST(KinetoPipeline, SumsOfSeveralStagesOfARankKeepTheirTimes) {
  std::vector<RankText> ranks;
  for (int r = 0; r < 2; ++r) {
    RankText rank(r);
    rank.range("dflop:forward stage=0 mb=0", 0, 10).range("dflop:forward stage=1 mb=0", 10, 20);
    rank.range("dflop:all_reduce_start stage=1", 20, 20.01).range("dflop:backward stage=1 mb=0", 20.02, 30);
    rank.reduction(27.9, 28, 33).range("dflop:all_reduce_start stage=0", 30, 30.01);
    rank.range("dflop:backward stage=0 mb=0", 30.02, 46).reduction(44.9, 45, 48);
    rank.range("dflop:all_reduce_wait stage=1", 46, 46.01).range("dflop:all_reduce_wait stage=0", 46.02, 48);
    rank.range("dflop:optimizer_step stage=0", 48, 49).range("dflop:optimizer_step stage=1", 49, 50);
    ranks.push_back(rank);
  }
  const PipelineImport import = import_all(ranks);
  ASSERT_EQ(import.steps.size(), 1u) << kinds_of(import);
  const RecordedProgram program = recorded_program(import.steps[0].timeline);
  ASSERT_EQ(program.costs.collective.size(), 2u);
  std::map<std::int32_t, Nanoseconds> sum_of_stage;
  for (std::size_t c = 0; c < program.program.collectives.size(); ++c) {
    const std::int32_t group = program.program.collectives[c].groups.front();
    for (const Instruction& i : program.program.instructions_of(program.program.groups[group])) {
      if (enters_collective(i.op) && i.index == static_cast<std::int32_t>(c))
        sum_of_stage[i.stage] = program.costs.collective[c];
    }
  }
  EXPECT_EQ(sum_of_stage, (std::map<std::int32_t, Nanoseconds>{{0, ms(3)}, {1, ms(5)}}));
  EXPECT_NEAR(Seconds(replayed(import.steps[0].timeline).makespan).count(), 0.050, 0.0003);
}

// torch itself adds a range for the step of every optimizer, even inside a user's range around it.
TEST(KinetoPipeline, AnOptimizerStepInsideARangeIsReadOnce) {
  std::vector<RankText> ranks = two_replicas();
  for (RankText& rank : ranks) rank.range("Optimizer.step#AdamW.step", 35.1, 35.9);
  const PipelineImport inside = import_all(ranks);
  ASSERT_EQ(inside.steps.size(), 1u) << kinds_of(inside);
  EXPECT_EQ(inside.steps[0].timeline.makespan, ms(36));
  for (RankText& rank : ranks) rank.range("Optimizer.step#AdamW.step", 36.1, 37);
  const PipelineImport behind = import_all(ranks);
  ASSERT_EQ(behind.steps.size(), 1u) << kinds_of(behind);
  EXPECT_EQ(behind.steps[0].timeline.makespan, ms(37));
}

/// A broken recording and the kind of finding that reports it.
struct Broken {
  const char* name;
  std::vector<RankText> ranks;
  const char* kind;
};

std::vector<Broken> broken_recordings() {
  std::vector<Broken> all;
  const auto add = [&](const char* name, const char* kind) -> std::vector<RankText>& {
    all.push_back({name, two_ranks(), kind});
    return all.back().ranks;
  };
  add("a range of no known form", "unread_range")[0].range("dflop:forward mb=1", 50, 51);
  add("a step twice", "repeated_range")[0].range("PP:0F0", 50, 51);
  add("a forward without backward", "missing_range")[0].range("PP:0F1", 50, 51);
  add("a backward without forward", "missing_range")[1].range("PP:1B1", 50, 51);
  add("a stage that no rank has", "missing_range")[0].range("PP:3F1", 50, 51).range("PP:3B1", 51, 52);
  add("ranges one in the other", "overlapping_ranges")[1].range("PP:1F1", 5, 6).range("PP:1B1", 50, 51);
  add("a send without receive", "unmatched_message")[0].message(true, 1, 41, 42);
  add("a receive that nothing needs", "unplaced_message")[0].message(false, 1, 41, 42);
  add("a message to a rank that does not wait", "unmatched_message")[1] = [] {
    RankText alone(1);
    alone.range("PP:1F0", 1, 22).range("PP:1B0", 22, 29).message(true, 0, 29, 31);
    return alone;
  }();
  add("one rank of two", "missing_rank").pop_back();
  add("a rank without ranges", "missing_range")[1] = RankText(1);
  add("a rank of another run", "different_runs")[1] = [] {
    RankText later(1, 2, 100'000);
    later.message(false, 0, 0.5, 11).range("PP:1F0", 1, 22).range("PP:1B0", 22, 29).message(true, 0, 29, 31);
    return later;
  }();
  add("a device's kernels in one range of several", "missing_activity")[0].text.launch(1, us(3)).kernel(
      1, "gemm", us(4), us(1));
  return all;
}

TEST(KinetoPipeline, AContradictionIsAFindingAndNoTimeline) {
  for (const Broken& broken : broken_recordings()) {
    SCOPED_TRACE(broken.name);
    const PipelineImport import = import_all(broken.ranks);
    EXPECT_TRUE(import.steps.empty());
    EXPECT_NE(kinds_of(import).find(broken.kind), std::string::npos) << kinds_of(import);
    for (const KinetoFinding& finding : import.findings) {
      EXPECT_NE(finding.place.find("rank"), std::string::npos) << "a file's name";
      EXPECT_FALSE(finding.text.empty());
    }
  }
}

/// Reads a recorded run of this repository, with its events in order.
std::vector<nlohmann::json> recorded(const std::string& order) {
  std::vector<nlohmann::json> files;
  for (int rank = 0; rank < 3; ++rank) {
    files.push_back(nlohmann::json::parse(read_text_file(
        fmt::format("{}/traces/kineto/pipeline/{}-rank{}.json.gz", DFLOP_SOURCE_DIR, order, rank))));
  }
  return files;
}

PipelineImport import_all(const std::vector<nlohmann::json>& files) {
  std::vector<KinetoTrace> traces;
  for (const nlohmann::json& file : files)
    traces.push_back(parse_kineto(file.dump(), fmt::format("rank{}.json", traces.size())));
  return import_all(traces);
}

TEST(KinetoPipeline, ARecordedRunReplaysItself) {
  for (const char* order : {"1f1b", "gpipe"}) {
    const PipelineImport import = import_all(recorded(order));
    ASSERT_GE(import.steps.size(), 2u) << kinds_of(import);
    EXPECT_TRUE(import.findings.empty()) << kinds_of(import);
    for (const PipelineStep& step : import.steps) {
      const double measured = Seconds(step.timeline.makespan).count();
      EXPECT_NEAR(Seconds(replayed(step.timeline).makespan).count(), measured, 0.02 * measured) << order;
      EXPECT_GT(step.known, 0);
    }
  }
}

}  // namespace kineto_pipeline_test
}  // namespace dflop
