#include "tests/backend/contract/executor.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "tests/backend/run/live_plans.hpp"

namespace dflop::testing {
namespace executor_test {

/// Simple nonzero costs of a program's parts, for executors that need costs.
class SimpleCosts final : public SumCostModel {
 public:
  Seconds compute(Op, const Stage&, const Work& work) const override {
    return Seconds(1e-6 * static_cast<double>(1 + work.encoder.tokens + work.llm.tokens));
  }
  Seconds message(const Message&, const Program&) const override { return Seconds(3e-6); }
  Seconds all_reduce(const Collective&, const Program&) const override { return Seconds(5e-6); }
  Seconds optimizer_step(const Stage&) const override { return Seconds(2e-6); }
  ModelState model_state(const Stage&) const override { return {Bytes{1'000}, {}, {}}; }
  Bytes activation(const Stage&, const Work& work) const override { return Bytes{1 + work.llm.tokens}; }
  Bytes workspace(Op, const Stage&, const Work&) const override { return Bytes{10}; }
};

/// One iteration of a plan, with all objects that it refers to.
struct Case {
  Plan plan;
  ModelSpec model = live_model();
  ClusterSpec cluster;
  SimpleCosts cost;
  std::vector<Sample> samples = live_samples(12, 5);
  Iteration iteration;

  explicit Case(Plan p) : plan(std::move(p)) {
    plan.gbs = static_cast<int>(samples.size());
    iteration = make_iteration({model, cluster, cost}, plan, samples, dealt(plan, samples.size()));
  }
  Case(const Case&) = delete;

  std::unique_ptr<Executor> executor() const { return ExecutorContract::GetParam().make(plan, model); }
};

/// Returns plans of both layouts, with reductions, tp, split backwards, and gradient buckets that overlap the
/// last backward.
std::vector<Plan> plans() {
  Plan split = disaggregated_plan({1, 1, 1, {}}, {1, 2, 1, {}}, 4);
  split.order = OrderKind::zb_h1;
  Plan buckets = uniform_plan(1, 2, 2, 3);
  buckets.gradient_bucket = Bytes{4'000};
  return {uniform_plan(1, 1, 1, 2), uniform_plan(2, 1, 2, 2),
          disaggregated_plan({1, 1, 2, {}}, {2, 1, 1, {}}, 3), split, buckets};
}

template <typename Check>
void for_each_case(const Check& check) {
  for (const Plan& plan : plans()) {
    SCOPED_TRACE(describe(plan));
    const Case c(plan);
    check(c);
  }
}

Nanoseconds end_of(const Span& span) {
  return span.start + span.duration;
}

/// Returns the spans of a group in the order of its instructions.
std::vector<Span> spans_of(const Timeline& timeline, const Group& group) {
  std::vector<Span> spans;
  for (const Span& span : timeline.spans) {
    if (span.rank == group.first_rank) spans.push_back(span);
  }
  std::stable_sort(spans.begin(), spans.end(),
                   [](const Span& a, const Span& b) { return a.position < b.position; });
  return spans;
}

TEST_P(ExecutorContract, EachInstructionHasOneSpan) {
  for_each_case([](const Case& c) {
    const Program& program = c.iteration.program;
    const Timeline timeline = c.executor()->run(c.iteration, Detail::spans);
    EXPECT_EQ(timeline.spans.size(), program.instructions.size());
    for (const Group& group : program.groups) {
      const std::vector<Span> spans = spans_of(timeline, group);
      ASSERT_EQ(spans.size(), static_cast<std::size_t>(group.end - group.begin));
      for (std::size_t k = 0; k < spans.size(); ++k) {
        const Instruction& instruction = program.instructions[group.begin + k];
        EXPECT_EQ(spans[k].position, static_cast<std::int32_t>(k));
        EXPECT_EQ(spans[k].op, instruction.op);
        EXPECT_EQ(spans[k].stage, instruction.stage);
        EXPECT_EQ(spans[k].microbatch, instruction.microbatch);
      }
    }
  });
}

TEST_P(ExecutorContract, ComputeFollowsTheListAndDoesNotOverlap) {
  for_each_case([](const Case& c) {
    const Timeline timeline = c.executor()->run(c.iteration, Detail::spans);
    for (const Group& group : c.iteration.program.groups) {
      Nanoseconds last_end{0};
      for (const Span& span : spans_of(timeline, group)) {
        EXPECT_GE(span.duration, Nanoseconds{0});
        if (span.stream != Stream::compute) continue;
        EXPECT_GE(span.start, last_end) << "position " << span.position;
        last_end = end_of(span);
      }
      EXPECT_LE(last_end, timeline.makespan);
    }
  });
}

TEST_P(ExecutorContract, AReceiveEndsAfterItsSendHasBegun) {
  for_each_case([](const Case& c) {
    const Timeline timeline = c.executor()->run(c.iteration, Detail::spans);
    std::map<std::int32_t, std::vector<Span>> sends;
    std::map<std::int32_t, std::vector<Span>> receives;
    for (const Span& span : timeline.spans) {
      if (is_send(span.op)) sends[span.message].push_back(span);
      if (is_receive(span.op)) receives[span.message].push_back(span);
    }
    EXPECT_EQ(sends.size(), c.iteration.program.messages.size());
    for (const auto& [message, of_message] : sends) {
      ASSERT_EQ(of_message.size(), 1u);
      ASSERT_EQ(receives[message].size(), 1u);
      EXPECT_GE(end_of(receives[message][0]), of_message[0].start) << "message " << message;
    }
  });
}

TEST_P(ExecutorContract, BusyBubbleAndWaitAreTheMakespan) {
  for_each_case([](const Case& c) {
    const Timeline timeline = c.executor()->run(c.iteration, Detail::spans);
    EXPECT_GT(timeline.makespan, Nanoseconds{0});
    EXPECT_TRUE(timeline.stalls.empty());
    ASSERT_EQ(timeline.groups.size(), c.iteration.program.groups.size());
    for (std::size_t g = 0; g < timeline.groups.size(); ++g) {
      const Group& group = c.iteration.program.groups[g];
      const GroupUsage& usage = timeline.groups[g];
      EXPECT_EQ(usage.first_rank, group.first_rank);
      EXPECT_EQ(usage.ranks, group.ranks);
      EXPECT_EQ(usage.stage, group.stage);
      EXPECT_EQ(usage.dp_rank, group.dp_rank);
      EXPECT_EQ(usage.busy + usage.bubble + usage.wait, timeline.makespan);
      Nanoseconds computed{0};
      for (const Span& span : spans_of(timeline, group)) {
        if (span.stream == Stream::compute) computed += span.duration;
      }
      EXPECT_EQ(usage.busy, computed);
      EXPECT_GE(usage.bubble, Nanoseconds{0});
      EXPECT_GE(usage.wait, Nanoseconds{0});
      EXPECT_GE(usage.peak_memory, usage.model_state.total());
    }
  });
}

TEST_P(ExecutorContract, UsageKeepsNoSpans) {
  const Case c(uniform_plan(1, 2, 2, 3));
  const Timeline timeline = c.executor()->run(c.iteration, Detail::usage);
  EXPECT_TRUE(timeline.spans.empty());
  EXPECT_TRUE(timeline.memory.empty());
  EXPECT_TRUE(timeline.works.empty());
  EXPECT_EQ(timeline.groups.size(), 4u);
  EXPECT_GT(timeline.makespan, Nanoseconds{0});
}

/// Except for times, the same iteration always has the same timeline.
TEST_P(ExecutorContract, TheSameIterationHasTheSameStructure) {
  using Row = std::tuple<std::int32_t, std::int32_t, Stream, Op, std::uint16_t, std::int32_t, std::int32_t>;
  for_each_case([](const Case& c) {
    const std::unique_ptr<Executor> executor = c.executor();
    const auto structure = [&] {
      const Timeline timeline = executor->run(c.iteration, Detail::spans);
      std::vector<Row> rows;
      for (const Span& s : timeline.spans) {
        rows.emplace_back(s.rank, s.position, s.stream, s.op, s.stage, s.microbatch, s.message);
      }
      std::sort(rows.begin(), rows.end());
      return std::pair(timeline.stages, rows);
    };
    EXPECT_EQ(structure(), structure());
  });
}

/// Both plans have two ranks but different stages. A simulator runs any program.
TEST_P(ExecutorContract, AnExecutorOfOnePlanRejectsAnother) {
  const Case own(uniform_plan(1, 1, 2, 2));
  const Case other(disaggregated_plan({1, 1, 1, {}}, {1, 1, 1, {}}, 2));
  const std::unique_ptr<Executor> executor = own.executor();
  if (!GetParam().of_one_plan) {
    EXPECT_EQ(executor->run(other.iteration, Detail::usage).stages.size(), 2u);
    return;
  }
  try {
    executor->run(other.iteration, Detail::usage);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("different plans"), std::string::npos) << error.what();
  }
}

}  // namespace executor_test
}  // namespace dflop::testing
