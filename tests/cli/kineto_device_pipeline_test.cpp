// Ranges with a GPU's kernels: an operation takes the time of the kernels launched in its range. The traces
// are made up in Kineto's format, not recorded on a GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "costmodel/recorded/recorded.hpp"
#include "sim/engine.hpp"
#include "tests/traces/kineto_fixtures.hpp"
#include "traces/profiler/pipeline.hpp"

namespace dflop {
namespace kineto_device_pipeline_test {

constexpr int kComputeStream = 7;
constexpr int kNcclStream = 20;
constexpr int kMainThread = 1;
constexpr int kAutogradThread = 9;

Nanoseconds ms(double value) {
  return Nanoseconds(std::llround(value * 1e6));
}

std::string us(double milliseconds) {
  return fmt::format("{:.3f}", milliseconds * 1e3);
}

/// A rank's trace. Times are milliseconds. The host's calls follow one another and run ahead of the device.
class DeviceRank {
 public:
  explicit DeviceRank(int rank)
      : rank_(rank),
        text_(fmt::format(R"("baseTimeNanoseconds": 1000000000, "distributedInfo": {{"rank": {},
        "world_size": 2}},)",
                          rank)) {
    text_.x("cpu_op", "aten::empty", us(0), us(0.001), kMainThread);
  }

  /// Begins a range. The following launches belong to it.
  DeviceRank& range(const std::string& name) {
    end_range();
    name_ = name;
    begin_ = now_;
    return *this;
  }

  DeviceRank& kernel(double start, double end, int thread = kMainThread) {
    launch(thread);
    text_.kernel(correlation_, "ampere_sgemm", us(start), us(end - start), kComputeStream);
    return *this;
  }

  /// A message of 100 floats.
  DeviceRank& message(bool is_send, double start, double end, bool names_ranks = true) {
    launch(kMainThread);
    const int peer = 1 - rank_;
    const std::string rank =
        names_ranks ? fmt::format(R"(, "{} Rank": {})", is_send ? "Dst" : "Src", peer) : "";
    text_.kernel(
        correlation_, "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", us(start), us(end - start),
        kNcclStream,
        fmt::format(
            R"(, "Collective name": "{}", "dtype": "Float", "In msg nelems": 100, "Out msg nelems": 100,
                 "Group size": 2, "Process Group Name": "1", "Process Group Ranks": "[0, 1]"{})",
            !names_ranks ? "coalesced"
            : is_send    ? "send"
                         : "recv",
            rank));
    return *this;
  }

  DeviceRank& sum(double start, double end, int thread = kAutogradThread,
                  const std::string& name = "allreduce") {
    launch(thread);
    text_.kernel(correlation_, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                 us(start), us(end - start), kNcclStream, collective_args(++sums_, name));
    return *this;
  }

  /// Adds a call whose kernel is missing from the trace.
  DeviceRank& lost_kernel() {
    launch(kMainThread);
    return *this;
  }

  KinetoTrace trace() {
    end_range();
    return text_.trace(fmt::format("rank{}.json", rank_));
  }

 private:
  void launch(int thread) {
    now_ += 0.01;
    text_.launch(++correlation_, us(now_), thread);
    now_ += 0.01;
  }

  void end_range() {
    now_ += 0.01;
    if (!name_.empty()) text_.x("user_annotation", name_, us(begin_), us(now_ - begin_), kMainThread);
    name_.clear();
    now_ += 0.01;
  }

  int rank_;
  KinetoText text_;
  std::string name_;
  double begin_ = 0;
  double now_ = 0.1;
  int correlation_ = 0;
  int sums_ = 0;
};

PipelineImport import_all(const std::vector<KinetoTrace>& traces) {
  return import_pipeline(traces, compare_ranks(traces));
}

Nanoseconds replayed(const PipelineStep& step) {
  const RecordedProgram program = recorded_program(step.timeline);
  return simulate(program.program, program.costs, Detail::usage).makespan;
}

std::string findings_of(const PipelineImport& import) {
  std::string all;
  for (const KinetoFinding& f : import.findings)
    all += fmt::format("{} {}: {}\n", to_string(f.kind), f.place, f.text);
  return all;
}

/// One microbatch through two stages. `ask` is when rank 1 asks for the message. The message's kernels end 1
/// ms after both ends are ready.
std::vector<KinetoTrace> two_ranks(double ask = 0.6, bool names_ranks = true) {
  const double here = std::max(12.0, ask) + 1;
  DeviceRank first(0);
  first.range("PP:0F0").kernel(2, 6).kernel(7, 12);
  first.range("PP:0SEND_F0").message(true, 12, here, names_ranks);
  first.range("PP:0RECV_B0").message(false, here, here + 19, names_ranks);
  first.range("PP:0B0").kernel(here + 19, here + 29, kAutogradThread);
  DeviceRank second(1);
  second.range("PP:1RECV_F0").message(false, ask, here, names_ranks);
  second.range("PP:1F0").kernel(here, here + 11);
  second.range("PP:1B0").kernel(here + 11, here + 18, kAutogradThread);
  second.range("PP:1SEND_B0").message(true, here + 18, here + 19, names_ranks);
  return {first.trace(), second.trace()};
}

void expect_joint(const PipelineImport& import) {
  EXPECT_NE(findings_of(import).find("joint_ranges rank0.json: ranks 0, 1 meet inside their forwards"),
            std::string::npos)
      << findings_of(import);
}

// Forward 10 with a gap of 1 between its kernels, 1 for the message, 11 and 7, 1 back, 10: 40. The host
// finished long before, at 0.3 ms.
TEST(KinetoDevicePipeline, AnOperationTakesTheTimeOfItsKernels) {
  const PipelineImport import = import_all(two_ranks());
  ASSERT_EQ(import.steps.size(), 1u) << findings_of(import);
  const PipelineStep& step = import.steps[0];
  EXPECT_EQ(step.timeline.makespan, ms(40));
  EXPECT_EQ(replayed(step), ms(40));
  EXPECT_EQ(step.timeline.groups[0].busy, ms(10 + 10));
  EXPECT_EQ(step.timeline.groups[1].busy, ms(11 + 7));
  EXPECT_EQ(step.messages, 2);
  EXPECT_EQ(step.known, 2);
  EXPECT_EQ(step.typical, ms(1)) << "rank 1 had asked at 0.6 and waited until 12 for the other end";
  EXPECT_EQ(step.timeline.spans[1].op, Op::send);
  EXPECT_EQ(step.timeline.spans[1].bytes, Bytes{400});
}

// Rank 1 asks at 20, 8 ms after the message could start. The transfer counts from the later of both ends.
TEST(KinetoDevicePipeline, AMessageTakesFromTheLaterOfBothKernels) {
  const PipelineImport import = import_all(two_ranks(20));
  ASSERT_EQ(import.steps.size(), 1u) << findings_of(import);
  EXPECT_EQ(import.steps[0].longest, ms(1));
}

TEST(KinetoDevicePipeline, RangesIdentifyCoalescedKernels) {
  const PipelineImport import = import_all(two_ranks(0.6, false));
  ASSERT_EQ(import.steps.size(), 1u) << findings_of(import);
  EXPECT_EQ(import.steps[0].timeline.makespan, ms(40));
}

// Two replicas whose backwards end at 30 and 33. The first sum is called when half of the backward is
// launched, and ends on both at 26. The second follows at 33 and takes 4.
std::vector<KinetoTrace> two_replicas(int sums_of_second = 2) {
  std::vector<KinetoTrace> traces;
  for (int r = 0; r < 2; ++r) {
    DeviceRank rank(r);
    rank.range("dflop:forward stage=0 mb=0").kernel(1, 10);
    rank.range("dflop:backward stage=0 mb=0").kernel(10, 20 + r, kAutogradThread).sum(20 + r, 26);
    rank.kernel(20 + r, 30 + 3 * r, kAutogradThread);
    if (r == 0 || sums_of_second == 2) rank.sum(30 + 3 * r, 37);
    rank.range("Optimizer.step#AdamW.step").kernel(37, 38);
    traces.push_back(rank.trace());
  }
  return traces;
}

TEST(KinetoDevicePipeline, SumsOverlapWithTheLastBackward) {
  const PipelineImport import = import_all(two_replicas());
  ASSERT_EQ(import.steps.size(), 1u) << findings_of(import);
  const Timeline& timeline = import.steps[0].timeline;
  EXPECT_EQ(timeline.makespan, ms(37));
  EXPECT_EQ(replayed(import.steps[0]), ms(37));
  std::vector<std::string> order;
  for (const Span& span : timeline.spans) {
    if (span.rank == 0) order.emplace_back(to_string(span.op));
    if (span.op == Op::all_reduce_start) {
      EXPECT_EQ(span.bytes, Bytes{4000});
    }
  }
  EXPECT_EQ(order, (std::vector<std::string>{"forward", "all_reduce_start", "all_reduce_start", "backward",
                                             "all_reduce_wait", "all_reduce_wait", "optimizer_step"}));
  EXPECT_EQ(timeline.groups[0].busy, ms(9 + 20 + 1));
  EXPECT_EQ(timeline.groups[0].wait, ms(7)) << "from the end of its backward at 30 to 37";
}

TEST(KinetoDevicePipeline, ASumThatARankLacksIsAFinding) {
  const PipelineImport import = import_all(two_replicas(1));
  EXPECT_TRUE(import.steps.empty());
  EXPECT_NE(findings_of(import).find("missing_collective rank0.json"), std::string::npos)
      << findings_of(import);
}

// A tensor-parallel group sums in every forward and backward, which is part of the compute.
TEST(KinetoDevicePipeline, SumsInsideEveryPassCountAsCompute) {
  std::vector<KinetoTrace> traces;
  for (int r = 0; r < 2; ++r) {
    DeviceRank rank(r);
    rank.range("dflop:forward stage=0 mb=0").kernel(1, 9).sum(9, 10, kMainThread).kernel(10, 11);
    rank.range("dflop:backward stage=0 mb=0").kernel(11, 20, kAutogradThread).sum(20, 22).kernel(22, 23);
    traces.push_back(rank.trace());
  }
  const PipelineImport import = import_all(traces);
  ASSERT_EQ(import.steps.size(), 1u) << findings_of(import);
  EXPECT_EQ(import.steps[0].timeline.spans.size(), 4u);
  EXPECT_EQ(import.steps[0].timeline.groups[0].busy, ms(22));
  expect_joint(import);
}

// An all-gather of parameters, as in FSDP, is not part of the compute, but the compute waits for it: forward
// 1-11 with a gap of 1.
TEST(KinetoDevicePipeline, GathersInsideForwardsWaitForAllRanks) {
  std::vector<KinetoTrace> traces;
  for (int r = 0; r < 2; ++r) {
    DeviceRank rank(r);
    rank.range("dflop:forward stage=0 mb=0").kernel(1, 9).sum(9, 10, kMainThread, "_allgather_base");
    rank.kernel(10, 11);
    rank.range("dflop:backward stage=0 mb=0").kernel(11, 20, kAutogradThread);
    traces.push_back(rank.trace());
  }
  const PipelineImport import = import_all(traces);
  ASSERT_EQ(import.steps.size(), 1u) << findings_of(import);
  EXPECT_EQ(import.steps[0].timeline.groups[0].busy, ms(19));
  expect_joint(import);
}

// Such a sum at the end of a range is also part of the range: forward 1-10 and backward 10-22.
TEST(KinetoDevicePipeline, SumsThatEndARangeArePartOfIt) {
  std::vector<KinetoTrace> traces;
  for (int r = 0; r < 2; ++r) {
    DeviceRank rank(r);
    rank.range("dflop:forward stage=0 mb=0").kernel(1, 9).sum(9, 10, kMainThread);
    rank.range("dflop:backward stage=0 mb=0").kernel(10, 20, kAutogradThread).sum(20, 22);
    traces.push_back(rank.trace());
  }
  const PipelineImport import = import_all(traces);
  ASSERT_EQ(import.steps.size(), 1u) << findings_of(import);
  EXPECT_EQ(import.steps[0].timeline.makespan, ms(21));
  EXPECT_EQ(import.steps[0].timeline.groups[0].busy, ms(21));
}

TEST(KinetoDevicePipeline, ARangeWithoutAllOfItsKernelsIsAFinding) {
  std::vector<KinetoTrace> traces;
  for (int r = 0; r < 2; ++r) {
    DeviceRank rank(r);
    rank.range("dflop:forward stage=0 mb=0").kernel(1, 9);
    if (r == 1) rank.lost_kernel();
    rank.range("dflop:backward stage=0 mb=0").kernel(11, 20, kAutogradThread);
    traces.push_back(rank.trace());
  }
  const PipelineImport lost = import_all(traces);
  EXPECT_TRUE(lost.steps.empty());
  EXPECT_NE(findings_of(lost).find("missing_activity rank1.json: traceEvents[3]"), std::string::npos)
      << findings_of(lost);
}

}  // namespace kineto_device_pipeline_test
}  // namespace dflop
