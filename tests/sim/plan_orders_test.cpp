// Lowers and runs random plans of every schedule and layout.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>

#include "core/iteration/iteration.hpp"
#include "core/program/encoder_share.hpp"
#include "core/program/lowering.hpp"
#include "sim/engine.hpp"
#include "tests/core/fixtures.hpp"
#include "tests/core/random_plan.hpp"

namespace dflop::testing {
namespace plan_orders_test {

/// One nanosecond per token and layer, both in the forward and in each part of a backward, except for a
/// frozen encoder, which has no backward. Activations take one byte per token. Messages take 5 ns.
class TokenCosts final : public SumCostModel {
 public:
  Seconds compute(Op op, const Stage& stage, const Work& work) const override {
    const int encoder_layers = op == Op::forward || stage.trained.encoder ? stage.encoder_layers : 0;
    const auto tokens =
        static_cast<double>(encoder_layers * work.encoder.tokens + stage.llm_layers * work.llm.tokens);
    return Seconds((op == Op::backward ? 2 : 1) * tokens * 1e-9);
  }
  bool knows_shares() const override { return true; }  // shares change nothing
  Seconds message(const Message&, const Program&) const override { return Seconds(5e-9); }
  Seconds all_reduce(const Collective&, const Program&) const override { return Seconds(0); }
  Seconds optimizer_step(const Stage&) const override { return Seconds(0); }
  ModelState model_state(const Stage& stage) const override {
    return {Bytes{10'000 * (stage.encoder_layers + stage.llm_layers)}, {}, {}};
  }
  Bytes activation(const Stage& stage, const Work& work) const override {
    return Bytes{(stage.encoder_layers > 0 ? work.encoder.tokens : 0) +
                 (stage.llm_layers > 0 ? work.llm.tokens : 0)};
  }
  Bytes workspace(Op, const Stage&, const Work&) const override { return Bytes{7}; }
};

struct Case {
  Plan plan;
  Batch batch;
  Assignment assignment = {};
  Program program = {};
  ProgramCosts costs = {};
};

/// Calls check(c) for random plans of every schedule and layout.
template <typename Check>
void for_each_case(const Check& check) {
  Random random(29);
  Random trained(31);
  ClusterSpec cluster = tiny_cluster(1, 1024);
  cluster.gpu.memory = Bytes{101'000};  // state takes up to 100,000, so limits matter
  for (const OrderKind order : all_order_kinds()) {
    for (const Layout layout : all_of<Layout>()) {
      if (!fits(traits(order), layout)) continue;
      for (int round = 0; round < 40; ++round) {
        SCOPED_TRACE(std::string(to_string(order)) + " " + std::string(to_string(layout)) + " " +
                     std::to_string(round));
        Case c{random_plan(random, order, layout), {}};
        c.plan.trained = random_trained(trained);
        validate(c.plan, tiny_model(), cluster);
        c.batch = random_batch(random, c.plan.gbs);
        c.assignment = random_assignment(random, c.plan, c.batch.size());
        const ModelSpec model = tiny_model();
        const TokenCosts costs;
        const Iteration iteration = make_iteration({model, cluster, costs}, c.plan, c.batch, c.assignment);
        c.program = iteration.program;
        c.costs = iteration.costs;
        check(c);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(PlanSchedules, AreAcceptedAndRunEveryStageOnceForEachMicrobatch) {
  for_each_case([](const Case& c) {
    verify(c.program);
    // Per stage, dp rank (the LLM's dp rank if each of them encodes its own samples) and microbatch.
    std::map<std::tuple<int, int, int>, int> forwards;
    std::map<std::tuple<int, int, int>, int> backwards;
    for (const Group& group : c.program.groups) {
      for (std::int64_t i = group.begin; i < group.end; ++i) {
        const Instruction& instruction = c.program.instructions[i];
        const std::tuple key(instruction.stage, group.dp_rank, instruction.microbatch);
        if (instruction.op == Op::forward) ++forwards[key];
        if (instruction.op == Op::backward || instruction.op == Op::backward_input) ++backwards[key];
      }
    }
    int expected = 0;
    for (const Stage& stage : c.program.stages) {
      const bool spread = c.plan.layout == Layout::colocated && stage.encoder_layers > 0;
      expected += (spread ? c.plan.llm.dp : stage.dp) * c.plan.microbatches;
    }
    EXPECT_EQ(forwards.size(), static_cast<std::size_t>(expected));
    EXPECT_EQ(forwards, backwards);
    for (const auto& [key, count] : forwards) EXPECT_EQ(count, 1);
  });
}

// With any schedule, every token passes every layer of its module once forward and, except in a frozen
// encoder, twice backward, over all dp ranks, a nanosecond each. A group with several copies of the encoder
// is busy until the last of them is.
TEST(PlanSchedules, LoseNoWork) {
  for_each_case([](const Case& c) {
    Work all;
    for (const Sample& sample : c.batch) {
      if (encoder_copies(c.plan) == 1) all.encoder += sample.encoder();
      all.llm += sample.llm();
    }
    const SamplesOfBins bins = samples_of_bins(c.plan, c.assignment);
    for (int j = 0; encoder_copies(c.plan) > 1 && j < c.plan.microbatches; ++j) {
      for (const Workload& last : largest_shares(c.plan, tiny_model(), c.batch, bins, j)) all.encoder += last;
    }
    const Timeline timeline = simulate(c.program, c.costs, Detail::usage);
    Nanoseconds busy{0};
    for (const GroupUsage& group : timeline.groups) busy += group.busy;
    const int passes = c.plan.trained.encoder ? 3 : 1;
    EXPECT_EQ(busy.count(), passes * 4 * all.encoder.tokens + 3 * 6 * all.llm.tokens);
  });
}

// The makespan is at least the time of the busiest group, and of any microbatch's path through all stages of
// one dp rank and back (only input parts if backwards are split).
TEST(PlanSchedules, TakeAsLongAsTheBusiestGroupAndTheLongestWay) {
  for_each_case([](const Case& c) {
    const Timeline timeline = simulate(c.program, c.costs, Detail::usage);
    std::map<std::pair<int, int>, std::vector<Nanoseconds>> of_stage;  // microbatch, stage: of each dp rank
    for (const Group& group : c.program.groups) {
      std::map<std::pair<int, int>, Nanoseconds> both;
      for (std::int64_t i = group.begin; i < group.end; ++i) {
        const Instruction& instruction = c.program.instructions[i];
        if (!is_compute(instruction.op) || instruction.op == Op::backward_weight) continue;
        both[{instruction.microbatch, instruction.stage}] += c.costs.instruction[i];
      }
      for (const auto& [key, time] : both) of_stage[key].push_back(time);
    }
    std::vector<Nanoseconds> way(c.plan.microbatches, Nanoseconds(0));
    for (const auto& [key, times] : of_stage) way[key.first] += *std::min_element(times.begin(), times.end());
    EXPECT_GE(timeline.makespan, *std::max_element(way.begin(), way.end()));
    for (const GroupUsage& group : timeline.groups) EXPECT_GE(timeline.makespan, group.busy);
  });
}

// simulate() itself rejects memory that does not return to the model state, which is the sum over a group's
// stages: 10,000 bytes per layer.
TEST(PlanSchedules, HoldTheStateOfAllTheirStages) {
  for_each_case([](const Case& c) {
    const Timeline timeline = simulate(c.program, c.costs, Detail::usage);
    std::int64_t layers = 0;
    for (const Stage& stage : c.program.stages)
      layers += stage.dp / stage.copies * (stage.encoder_layers + stage.llm_layers);
    std::int64_t state = 0;
    for (const GroupUsage& group : timeline.groups) state += group.model_state.total().count;
    EXPECT_EQ(state, 10'000 * layers);
  });
}

// A stage with dp above one is reduced once over all its groups, and each group runs the optimizer step of
// each of its stages.
TEST(PlanSchedules, ReduceAndStepEveryStageOnEveryGroupThatHoldsIt) {
  for_each_case([](const Case& c) {
    std::vector<int> steps(c.program.stages.size(), 0);
    std::vector<std::int64_t> reduced(c.program.stages.size(), 0);  // bytes, over all groups
    for (const Instruction& instruction : c.program.instructions) {
      if (instruction.op == Op::optimizer_step) ++steps[instruction.stage];
      if (enters_collective(instruction.op)) {
        reduced[instruction.stage] += c.program.collectives[instruction.index].bytes.count;
      }
    }
    for (std::size_t s = 0; s < steps.size(); ++s) {
      const int dp = c.program.stages[s].dp;
      const int groups = dp / c.program.stages[s].copies;
      EXPECT_EQ(steps[s], groups);
      EXPECT_EQ(reduced[s], dp > 1 ? groups * 4 * trained_parameters(c.program.stages[s], tiny_model()) : 0);
    }
  });
}

// A stage gets gradients from the next stage exactly if it or a stage before it has trained parts.
TEST(PlanSchedules, SendGradientsBackOnlyToTrainedParts) {
  int frozen = 0;
  for_each_case([&](const Case& c) {
    std::vector<bool> returned(c.program.stages.size(), false);
    for (const Group& group : c.program.groups) {
      for (const Instruction& i : c.program.instructions_of(group)) {
        if (!is_send(i.op)) continue;
        const Message& message = c.program.messages[i.index];
        // The sender's stage is in the send, the receiver's stage in the receive.
        for (const Instruction& r : c.program.instructions_of(c.program.groups[message.destination])) {
          if (is_receive(r.op) && r.index == i.index && r.stage + 1 == i.stage) returned[r.stage] = true;
        }
      }
    }
    for (std::size_t s = 0; s + 1 < returned.size(); ++s) {
      if (gradients_return(c.program.stages, s)) continue;
      EXPECT_FALSE(returned[s]);
      ++frozen;
    }
  });
  EXPECT_GT(frozen, 100);
}

// By hand: a frozen encoder of 4 layers runs its two microbatches of 16 tokens, 64 ns each, one after the
// other. The LLM's 6 layers of 40 tokens take 240 ns forward and 480 backward, and the first forward waits
// for the encoder and its message, 5 ns. The encoder waits for no gradient, and nothing is reduced or sent
// back.
TEST(PlanSchedules, FrozenEncoderRunsAhead) {
  Plan plan = disaggregated_plan({1, 1, 1, {4}}, {1, 1, 1, {6}}, 2, 2);
  plan.trained = {false, false, true, 0};
  const ModelSpec model = tiny_model();
  const ClusterSpec cluster = tiny_cluster();
  const TokenCosts costs;
  const Batch batch(2, {"a", Modality::image, {{1, 16, 256}}, 30, 40});
  const Iteration iteration = make_iteration({model, cluster, costs}, plan, batch, {2, 1, {0, 1}});
  EXPECT_EQ(iteration.program.messages.size(), 2U);
  const Timeline timeline = simulate(iteration.program, iteration.costs, Detail::usage);
  EXPECT_EQ(timeline.makespan.count(), 64 + 5 + 2 * (240 + 480));
  EXPECT_EQ(timeline.groups[0].busy.count(), 128);
}

// 6 LLM layers in 2 chunks on 3 ranks: stages 1 to 6 after one encoder stage.
TEST(PlanSchedules, NameChunksByTheirRank) {
  Plan plan = disaggregated_plan({1, 1, 1, {4}}, {1, 3, 1, {1, 1, 1, 1, 1, 1}}, 3, 3);
  plan.order = OrderKind::interleaved;
  plan.chunks = 2;
  Random random(1);
  const Batch batch = random_batch(random, 3);
  const Assignment assignment = random_assignment(random, plan, 3);
  EXPECT_EQ(
      stage_names(lower(plan, tiny_model(), batch, assignment)),
      (std::vector<std::string>{"encoder 0", "llm 0", "llm 1", "llm 2", "llm 0.1", "llm 1.1", "llm 2.1"}));
  plan.order = OrderKind::zb_v;
  EXPECT_EQ(
      stage_names(lower(plan, tiny_model(), batch, assignment)),
      (std::vector<std::string>{"encoder 0", "llm 0", "llm 1", "llm 2", "llm 2.1", "llm 1.1", "llm 0.1"}));
}

// The encoder of microbatch j runs on LLM rank j mod 2. Rank 0 needs no message for its own microbatches.
TEST(PlanSchedules, ColocatedGroupsSendTheirEncoderOutputsToTheFirstLlmStage) {
  Plan plan;
  plan.layout = Layout::colocated;
  plan.order = OrderKind::encoder_in_bubbles;
  plan.encoder = {1, 1, 2, {4}};
  plan.llm = {1, 2, 1, {3, 3}};
  plan.microbatches = 4;
  plan.gbs = 4;
  const Batch batch(4, {"a", Modality::image, {{3, 16, 256}}, 30, 40});
  const Program program = lower(plan, tiny_model(), batch, {4, 1, {0, 1, 2, 3}});
  verify(program);
  ASSERT_EQ(program.groups.size(), 2u);
  int resharded = 0;
  for (std::int64_t i = 0; i < program.groups[1].end; ++i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.stage == 0 && is_compute(instruction.op)) {
      EXPECT_EQ(instruction.microbatch % 2, i < program.groups[0].end ? 0 : 1);
    }
    if (instruction.op != Op::reshard_send) continue;
    ++resharded;
    EXPECT_EQ(instruction.microbatch % 2, 1);
    EXPECT_EQ(program.messages[instruction.index].bytes, (Bytes{30 * 128 * 2}));
  }
  EXPECT_EQ(resharded, 4);  // two microbatches, forth and back
}

// The peak of eager-1f1b and of encoders in bubbles stays within the memory for which their tables were made,
// 1,000 bytes beyond the state of the fullest group, if one microbatch fits.
TEST(PlanSchedules, StayWithinTheMemoryOfTheirLimits) {
  int checked = 0;
  for_each_case([&](const Case& c) {
    if (!traits(c.plan.order).reads_limits) return;
    const Timeline timeline = simulate(c.program, c.costs, Detail::usage);
    const PipelineShape shape = plan_shape(c.plan);
    for (std::size_t g = 0; g < c.program.groups.size(); ++g) {
      const Group& group = c.program.groups[g];
      Bytes encoder;
      Bytes llm;
      Bytes workspace;  // 7, and for a hub what it forwards
      for (std::int64_t i = group.begin; i < group.end; ++i) {
        const bool in_bubbles = shape.spreads_encoder() && c.program.instructions[i].stage == 0;
        workspace = std::max(workspace, c.costs.workspace[i]);
        (in_bubbles ? encoder : llm) = std::max(in_bubbles ? encoder : llm, c.costs.activation[i]);
      }
      // The minimum need: one microbatch, or the LLM's 1F1B and one microbatch of the encoder.
      const int held =
          shape.spreads_encoder() ? std::min(c.plan.microbatches, shape.ranks + 1 - group.stage) : 1;
      const Bytes least_needed =
          c.costs.model_state[g].total() + workspace + Bytes{held * llm.count + encoder.count};
      EXPECT_LE(timeline.groups[g].peak_memory, std::max(least_needed, Bytes{101'000}));
      checked += timeline.groups[g].peak_memory > least_needed ? 1 : 0;
    }
  });
  EXPECT_GT(checked, 20);
}

/// Returns the forwards of each rank before its first backward.
std::vector<int> warm_ups(const PipelineOrder& order) {
  std::vector<int> counts;
  for (const std::vector<OrderStep>& steps : order.ranks) {
    const auto first = std::ranges::find(steps, Op::backward, &OrderStep::op);
    counts.push_back(static_cast<int>(first - steps.begin()));
  }
  return counts;
}

/// Returns memory in which 1f1b surely fits: the peak of its fullest rank, or the sum of one rank of each
/// module if two ranks share a GPU.
Bytes memory_of(const Iteration& iteration, const Timeline& timeline) {
  Bytes of_modules[2];
  for (const GroupUsage& group : timeline.groups) {
    Bytes& most = of_modules[group.first_rank < iteration.program.shared_gpus ? 1 : 0];
    most = std::max(most, group.peak_memory);
  }
  return of_modules[0] + of_modules[1];
}

/// Returns the longest time for which forwards can delay gradients on their way up the ranks: on each rank,
/// the sum of its longest forwards, as many as its warm-up has beyond `warm_up`.
Nanoseconds most_waiting(const Iteration& iteration, const std::vector<int>& warm_up) {
  const Program& program = iteration.program;
  const std::vector<int> eager = warm_ups(iteration.order);
  std::vector<Nanoseconds> of_rank(eager.size());
  int rank = -1;
  for (const Group& group : program.groups) {
    if (group.dp_rank == 0) ++rank;
    std::vector<Nanoseconds> forwards;
    for (std::int64_t i = group.begin; i < group.end; ++i) {
      if (program.instructions[i].op == Op::forward) forwards.push_back(iteration.costs.instruction[i]);
    }
    std::ranges::sort(forwards, std::greater());
    const auto end = forwards.begin() + (eager[rank] - warm_up[rank]);
    of_rank[rank] = std::max(of_rank[rank], std::accumulate(forwards.begin(), end, Nanoseconds(0)));
  }
  return std::accumulate(of_rank.begin(), of_rank.end(), Nanoseconds(0));
}

// If 1f1b fits, eager-1f1b warms up with at least as many forwards on every rank, also fits, and takes no
// longer, except for gradients that wait for its extra forwards. Half of the time there is no memory beyond
// the needs of 1f1b.
TEST(PlanSchedules, EagerHoldsAtLeastOneFOneBIfThatFits) {
  Random random(37);
  const ClusterSpec cluster = tiny_cluster(1, 1024);
  const ModelSpec model = tiny_model();
  const TokenCosts costs;
  int deeper = 0;
  int faster = 0;
  for (const Layout layout : {Layout::uniform, Layout::disaggregated, Layout::shared}) {
    for (int round = 0; round < 100; ++round) {
      Plan plan = random_plan(random, OrderKind::eager_1f1b, layout);
      const Batch batch = random_batch(random, plan.gbs);
      const Assignment assignment = random_assignment(random, plan, batch.size());
      plan.order = OrderKind::one_f_one_b;
      const Iteration usual = make_iteration({model, cluster, costs}, plan, batch, assignment);
      const Timeline usual_run = SimExecutor().run(usual, Detail::usage);
      const std::vector<int> usual_warm_up = warm_ups(usual.order);
      plan.order = OrderKind::eager_1f1b;
      const Bytes usable =
          memory_of(usual, usual_run) + Bytes{pick(random, 400) * static_cast<int>(random.below(2))};
      const Iteration eager = make_iteration({model, cluster, costs}, plan, batch, assignment,
                                             order_for_batch(plan, model, costs, batch, assignment, usable));
      const Timeline run = SimExecutor().run(eager, Detail::usage);
      SCOPED_TRACE(describe(plan) + " round " + std::to_string(round));
      const std::vector<int> warm_up = warm_ups(eager.order);
      for (std::size_t r = 0; r < warm_up.size(); ++r)
        EXPECT_GE(warm_up[r], usual_warm_up[r]) << "rank " << r;
      EXPECT_LE(peak_memory(run), usable);
      EXPECT_LE(run.makespan, usual_run.makespan + most_waiting(eager, usual_warm_up));
      deeper += warm_up > usual_warm_up ? 1 : 0;
      faster += run.makespan < usual_run.makespan ? 1 : 0;
      if (::testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(deeper, 50);
  EXPECT_GT(faster, 20);
}

}  // namespace plan_orders_test
}  // namespace dflop::testing
