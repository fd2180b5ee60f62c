// A recorded run has enough information to run it again.
#include "costmodel/recorded/recorded.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "core/program/lowering.hpp"
#include "costmodel/analytic/analytic.hpp"
#include "sim/engine.hpp"
#include "tests/core/fixtures.hpp"
#include "tests/core/pipelines.hpp"
#include "tests/costmodel/fixtures.hpp"
#include "tests/sim/random_program.hpp"

namespace dflop::testing {
namespace recorded_program_test {

Timeline replay(const RecordedProgram& recorded) {
  return simulate(recorded.program, recorded.costs, Detail::spans);
}

/// Sorts spans by rank: simultaneous events may come in another order if they result from a network or late
/// collectives.
Timeline in_order_of_ranks(Timeline timeline) {
  std::sort(timeline.spans.begin(), timeline.spans.end(), [](const Span& a, const Span& b) {
    return std::tie(a.rank, a.position) < std::tie(b.rank, b.position);
  });
  std::stable_sort(timeline.memory.begin(), timeline.memory.end(),
                   [](const MemoryPoint& a, const MemoryPoint& b) { return a.rank < b.rank; });
  return timeline;
}

/// Replays a run of `priced` under these conditions, and expects the same timeline.
void expect_same_again(const PricedProgram& priced, const Conditions& conditions = {}) {
  const Timeline recording = simulate(priced.program, priced.costs, Detail::spans, conditions);
  const RecordedProgram recorded = recorded_program(recording);
  EXPECT_TRUE(recorded.memory);
  const bool late = std::any_of(priced.program.instructions.begin(), priced.program.instructions.end(),
                                [](const Instruction& i) { return i.op == Op::all_reduce_start; });
  if (late || conditions.network != nullptr) {
    EXPECT_EQ(in_order_of_ranks(replay(recorded)), in_order_of_ranks(recording));
  } else {
    EXPECT_EQ(replay(recorded), recording);
  }
}

TEST(RecordedProgramRuns, OfRandomProgramsAreReproduced) {
  Random random(99);
  for (int k = 0; k < 300 && !::testing::Test::HasFailure(); ++k) {
    SCOPED_TRACE("program " + std::to_string(k));
    const PricedProgram priced = make_random_program(random);
    expect_same_again(priced);
    const Network network = shared_link(priced.program, Nanoseconds(5), 2e9, 2e9);
    expect_same_again(priced, {&network, {}});
  }
}

// The recording does not tell where inside a span a pause was, so its time counts as busy and not as bubble.
// All else is the same.
TEST(RecordedProgramRuns, WithPausesCountThemAsBusy) {
  Random random(5);
  bool paused = false;
  for (int k = 0; k < 100 && !::testing::Test::HasFailure(); ++k) {
    SCOPED_TRACE("program " + std::to_string(k));
    const PricedProgram priced = make_random_program(random);
    Conditions conditions;
    for (std::int64_t start = 0; start < 10'000; start += 1'000) {
      const auto group = static_cast<std::int32_t>(random.below(priced.program.groups.size()));
      conditions.pauses.push_back({group, Nanoseconds(start), Nanoseconds(300)});
    }
    Timeline recording = simulate(priced.program, priced.costs, Detail::spans, conditions);
    for (GroupUsage& usage : recording.groups) {
      Nanoseconds computing{0};
      for (const Span& span : recording.spans) {
        if (span.rank == usage.first_rank && span.stream == Stream::compute) computing += span.duration;
      }
      paused = paused || computing > usage.busy;
      usage.bubble -= computing - usage.busy;
      usage.busy = computing;
    }
    EXPECT_EQ(in_order_of_ranks(replay(recorded_program(recording))), in_order_of_ranks(recording));
  }
  EXPECT_TRUE(paused);
}

/// Two microbatches on each of 2 to 4 groups, and collectives over random groups that all ranks enter in the
/// same order: immediately, late, or blocking.
class BackgroundCollectives {
 public:
  explicit BackgroundCollectives(Random& random) : random_(random) {}

  PricedProgram build() {
    Program& program = priced_.program;
    program.microbatches = kMicrobatches;
    program.works.resize(1);
    program.stages.resize(1);
    const std::size_t groups = 2 + random_.below(3);
    for (std::size_t g = 0; g < groups; ++g) {
      program.groups.push_back({static_cast<std::int32_t>(g), 1, 0, static_cast<std::int32_t>(g), 0, 0});
    }
    const double readies[] = {0, 0.25, 0.5, random_.uniform(), 1};
    for (std::size_t c = 0; c < 1 + random_.below(5); ++c) {
      Collective& collective = program.collectives.emplace_back();
      for (std::size_t g = 0; g < groups; ++g) {
        if (random_.below(3) > 0) collective.groups.push_back(static_cast<std::int32_t>(g));
      }
      if (collective.groups.empty()) collective.groups.push_back(0);
      collective.bytes = Bytes{8};
      collective.ready = readies[random_.below(5)];
      priced_.costs.collective.push_back(Nanoseconds(static_cast<std::int64_t>(random_.below(200))));
    }
    for (Group& group : program.groups) add_list(group);
    priced_.costs.model_state.resize(groups);
    priced_.costs.activation.resize(program.instructions.size());
    priced_.costs.workspace.resize(program.instructions.size());
    return std::move(priced_);
  }

 private:
  static constexpr int kMicrobatches = 8;

  void add(Op op, std::int32_t microbatch, std::int32_t index, std::uint64_t duration) {
    priced_.program.instructions.push_back({op, 0, microbatch, index});
    priced_.costs.instruction.push_back(Nanoseconds(static_cast<std::int64_t>(duration)));
  }

  void add_list(Group& group) {
    Program& program = priced_.program;
    group.begin = static_cast<std::int64_t>(program.instructions.size());
    std::vector<std::int32_t> mine;
    for (std::size_t c = 0; c < program.collectives.size(); ++c) {
      const auto& members = program.collectives[c].groups;
      if (std::find(members.begin(), members.end(), group.first_rank) != members.end()) {
        mine.push_back(static_cast<std::int32_t>(c));
      }
    }
    std::size_t next = 0;
    std::vector<std::int32_t> open;
    for (int step = 0; step < 2 * kMicrobatches; ++step) {
      double latest = 0;
      const bool forced = 2 * kMicrobatches - step <= static_cast<int>(mine.size());
      while (next < mine.size() && (forced || random_.below(4) == 0)) {
        const double ready = program.collectives[mine[next]].ready;
        if (ready < latest) break;  // enter with the next compute
        const bool blocking = latest == 0 && random_.below(4) == 0;
        add(blocking ? Op::all_reduce : Op::all_reduce_start, -1, mine[next], 0);
        if (!blocking) {
          open.push_back(mine[next]);
          latest = ready;
        }
        ++next;
      }
      add(step % 2 == 0 ? Op::forward : Op::backward, step / 2, 0, random_.below(100));
    }
    for (const std::int32_t c : open) add(Op::all_reduce_wait, -1, c, 0);
    add(Op::optimizer_step, -1, -1, random_.below(50));
    group.end = static_cast<std::int64_t>(program.instructions.size());
  }

  Random& random_;
  PricedProgram priced_;
};

TEST(RecordedProgramRuns, WithLateCollectivesAreReproduced) {
  Random random(31);
  int late = 0;
  for (int k = 0; k < 2'000 && !::testing::Test::HasFailure(); ++k) {
    SCOPED_TRACE("program " + std::to_string(k));
    const PricedProgram priced = BackgroundCollectives(random).build();
    ASSERT_NO_THROW(verify(priced.program));
    expect_same_again(priced);
    const RecordedProgram recorded = recorded_program(simulate(priced.program, priced.costs, Detail::spans));
    for (const Instruction& instruction : priced.program.instructions) {
      if (instruction.op != Op::all_reduce_start) continue;
      const double ready = priced.program.collectives[instruction.index].ready;
      EXPECT_GE(recorded.program.collectives[instruction.index].ready, ready);
      late += ready > 0 && ready < 1 ? 1 : 0;
    }
  }
  EXPECT_GT(late, 1'000);
}

// Three groups with F of 1, 1 and 60 ns and B of 100, 100 and 1,000. Collective 0 keeps group 1 busy from 0
// to 50. During B, group 1 enters 1 and 2, group 0 enters 2 and 3, and group 2 enters 3, each after 0.01 of
// it.
//   1 starts at 50, after 0, and takes 5: by itself it could have been entered after 0.49
//   2 starts at 55, after 1, and takes 5: after 0.54
//   3 starts at 70, 10 into the B of group 2, so it was entered after 0.01
// In group 0 collective 2 comes before 3, and in group 1 collective 1 before 2: none is entered after 0.01.
TEST(RecordedProgramRuns, BoundLateEntriesByLaterOnes) {
  PricedProgram priced;
  Program& program = priced.program;
  program.microbatches = 1;
  program.works.resize(1);
  program.stages.resize(1);
  program.collectives = {{.groups = {1}, .bytes = {8}},
                         {.groups = {1}, .bytes = {8}, .ready = 0.01},
                         {.groups = {0, 1}, .bytes = {8}, .ready = 0.01},
                         {.groups = {0, 2}, .bytes = {8}, .ready = 0.01}};
  priced.costs.collective = {Nanoseconds(50), Nanoseconds(5), Nanoseconds(5), Nanoseconds(5)};
  const std::vector<std::vector<std::int32_t>> early = {{}, {0}, {}};
  const std::vector<std::vector<std::int32_t>> late = {{2, 3}, {1, 2}, {3}};
  const auto add = [&](Op op, std::int32_t microbatch, std::int32_t index, int duration) {
    program.instructions.push_back({op, 0, microbatch, index});
    priced.costs.instruction.push_back(Nanoseconds(duration));
  };
  for (std::int32_t g = 0; g < 3; ++g) {
    const auto begin = static_cast<std::int64_t>(program.instructions.size());
    for (const std::int32_t c : early[g]) add(Op::all_reduce_start, -1, c, 0);
    add(Op::forward, 0, 0, g == 2 ? 60 : 1);
    for (const std::int32_t c : late[g]) add(Op::all_reduce_start, -1, c, 0);
    add(Op::backward, 0, 0, g == 2 ? 1'000 : 100);
    for (const std::int32_t c : early[g]) add(Op::all_reduce_wait, -1, c, 0);
    for (const std::int32_t c : late[g]) add(Op::all_reduce_wait, -1, c, 0);
    program.groups.push_back({g, 1, 0, g, begin, static_cast<std::int64_t>(program.instructions.size())});
  }
  priced.costs.model_state.resize(3);
  priced.costs.activation.resize(program.instructions.size());
  priced.costs.workspace.resize(program.instructions.size());
  verify(program);
  expect_same_again(priced);
  const RecordedProgram recorded = recorded_program(simulate(program, priced.costs, Detail::spans));
  for (const std::size_t c : {1, 2, 3}) {
    EXPECT_NEAR(recorded.program.collectives[c].ready, 0.01, 0.001) << c;
  }
}

// Excludes zb-v and forwards without duration: recover_memory() explains which forwards reveal nothing.
TEST(RecordedProgramRuns, OfRawPipelinesAreReproduced) {
  Random random(8);
  for_each_shape(4, 8, 3, [&](const PipelineShape& shape) {
    RawPipeline pipeline = random_pipeline(random, shape);
    for (auto& row : pipeline.forward.rows) {
      for (Seconds& time : row) time += Nanoseconds(1);
    }
    if (pipeline.encoder) {
      for (Seconds& time : pipeline.encoder->forward.rows[0]) time += Nanoseconds(1);
    }
    const PricedProgram priced = make_program(pipeline);
    expect_same_again({priced.program, priced.costs});
  });
}

/// Prices the plan with the analytic model on a cluster of four nodes of four GPUs, and replays it.
void expect_same_plan_again(Random& random, const Plan& plan) {
  const ModelSpec model = tiny_model();
  const Batch batch = random_batch(random, plan.gbs);
  ClusterSpec cluster = fixtures::a100_cluster();
  cluster.gpus_per_node = 4;
  const Program program = lower(plan, model, batch, random_assignment(random, plan, batch.size()));
  const ProgramCosts costs = AnalyticCostModel(model, cluster).price(program);
  expect_same_again({program, costs});
  const Network network = shared_link(program, Nanoseconds(100), 1e9, 1e9);
  expect_same_again({program, costs}, {&network, {}});
  const RecordedProgram recorded = recorded_program(simulate(program, costs, Detail::spans));
  EXPECT_EQ(recorded.program.instructions, program.instructions);
  EXPECT_EQ(recorded.program.works, program.works);
  EXPECT_EQ(recorded.program.microbatches, program.microbatches);
  ASSERT_EQ(recorded.program.messages.size(), program.messages.size());
  for (std::size_t m = 0; m < program.messages.size(); ++m) {
    EXPECT_EQ(recorded.program.messages[m].port_bytes, program.messages[m].port_bytes) << m;
  }
  EXPECT_EQ(recorded.costs.activation, costs.activation);
  EXPECT_EQ(recorded.costs.workspace, costs.workspace);
}

TEST(RecordedProgramRuns, OfPlansAreReproduced) {
  Random random(12);
  for (int round = 0; round < 10; ++round) {
    Plan plan = disaggregated_plan({1, 2, 2, {2, 2}}, {2, 3, 2, {2, 2, 2}}, 4, 24);
    expect_same_plan_again(random, plan);
    plan.order = OrderKind::zb_h1;  // its input parts restore what recomputation dropped
    for (const Recomputation mode : {Recomputation::full, Recomputation::none}) {
      plan.recomputation = mode;
      expect_same_plan_again(random, plan);
      for (const TrainedParts& trained :
           {TrainedParts{false, true, true, 0}, TrainedParts{false, true, false, 0},
            TrainedParts{false, false, false, 4}}) {
        Plan frozen = plan;
        frozen.trained = trained;
        expect_same_plan_again(random, frozen);
      }
    }
    Plan uniform = disaggregated_plan({2, 2, 3, {4, 0}}, {2, 2, 3, {2, 4}}, 3, 20);
    uniform.layout = Layout::uniform;
    uniform.order = OrderKind::gpipe;
    uniform.placement = RankOrder::replica_major;
    expect_same_plan_again(random, uniform);
  }
}

// The recording of one schedule prices the other: parts are matched by stage, dp rank, op and microbatch.
TEST(RecordedProgramRuns, PriceTheSamePlanUnderAnotherScheduleCorrectly) {
  Random random(13);
  const ModelSpec model = tiny_model();
  const ClusterSpec cluster = fixtures::a100_cluster();
  const AnalyticCostModel cost(model, cluster);
  Plan plan = disaggregated_plan({1, 2, 2, {2, 2}}, {2, 3, 2, {2, 2, 2}}, 4, 24);
  const Batch batch = random_batch(random, plan.gbs);
  const Assignment assignment = random_assignment(random, plan, batch.size());
  const Program one_f_one_b = lower(plan, model, batch, assignment);
  const RecordedProgram recorded =
      recorded_program(simulate(one_f_one_b, cost.price(one_f_one_b), Detail::spans));
  plan.order = OrderKind::gpipe;
  const Program gpipe = lower(plan, model, batch, assignment);
  PricedParts parts;
  const ProgramCosts prices = RecordedCostModel(recorded, cost).price(gpipe, parts);
  const ProgramCosts expected = cost.price(gpipe);
  EXPECT_EQ(prices.instruction, expected.instruction);
  EXPECT_EQ(prices.message, expected.message);
  EXPECT_EQ(prices.collective, expected.collective);
  EXPECT_EQ(prices.model_state, expected.model_state);
  EXPECT_EQ(prices.activation, expected.activation);
  EXPECT_EQ(prices.workspace, expected.workspace);
  // Split backwards were not recorded, so the fallback determines what they keep.
  plan.order = OrderKind::zb_h1;
  const Program split = lower(plan, model, batch, assignment);
  EXPECT_EQ(RecordedCostModel(recorded, cost).price(split).activation, cost.price(split).activation);
  for (const PriceSources& sources : {parts.instructions, parts.messages, parts.collectives}) {
    EXPECT_GT(sources.exact, 0);
    EXPECT_EQ(sources.exact, sources.total());
  }
}

// Twice as many samples in half as many microbatches: hardly any part is the same. The simulator's prices are
// still recovered, up to rounding to whole nanoseconds: compute by a ratio of 1 to its model, and messages by
// lines that fit exactly.
TEST(RecordedProgramRuns, PriceAnotherPlanLikeTheirCostModel) {
  Random random(14);
  const ModelSpec model = tiny_model();
  ClusterSpec cluster = fixtures::a100_cluster();
  cluster.gpus_per_node = 4;
  const AnalyticCostModel cost(model, cluster);
  const auto lowered = [&](const Plan& plan) {
    const Batch batch = random_batch(random, plan.gbs);
    return lower(plan, model, batch, random_assignment(random, plan, batch.size()));
  };
  const Program first = lowered(disaggregated_plan({1, 2, 2, {2, 2}}, {2, 3, 2, {2, 2, 2}}, 4, 24));
  const Program second = lowered(disaggregated_plan({1, 2, 2, {2, 2}}, {1, 3, 3, {2, 2, 2}}, 2, 48));
  const RecordedProgram recorded = recorded_program(simulate(first, cost.price(first), Detail::spans));
  const RecordedCostModel model_of_recording(recorded, cost, cluster);
  PricedParts parts;
  const ProgramCosts prices = model_of_recording.price(second, parts);
  const ProgramCosts expected = cost.price(second);
  const auto expect_near = [](const std::vector<Nanoseconds>& found, const std::vector<Nanoseconds>& wanted) {
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto allowed = 2 + wanted[i].count() / 1'000;
      EXPECT_NEAR(static_cast<double>(found[i].count()), static_cast<double>(wanted[i].count()),
                  static_cast<double>(allowed))
          << i;
    }
  };
  expect_near(prices.instruction, expected.instruction);
  expect_near(prices.message, expected.message);
  expect_near(prices.collective, expected.collective);
  EXPECT_GT(parts.instructions.scaled, 0);
  EXPECT_GT(parts.messages.by_shape, 0);
}

}  // namespace recorded_program_test
}  // namespace dflop::testing
