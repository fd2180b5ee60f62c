#include "solver/load_pipeline.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/program/raw_pipeline.hpp"
#include "core/support/random.hpp"
#include "sim/engine.hpp"
#include "tests/core/pipelines.hpp"

namespace dflop {
namespace load_pipeline_test {

// 1F1B of equal microbatches (Narayanan et al. 2021): (M + p - 1) (forward + backward),
// here (6 + 3 - 1) (1 + 2).
TEST(LoadPipeline, EqualMicrobatchesMatchTheClosedForm) {
  const LoadPipeline pipeline = simple_load_pipeline({OrderKind::one_f_one_b, 3, 1, 6}, 1, 1, 1, 2.0);
  EXPECT_DOUBLE_EQ(makespan(pipeline, {std::vector<double>(6, 1.0), std::vector<double>(6, 1.0)}), 24.0);
}

// One encoder chain for two dp ranks, two encoder ranks, one LLM stage, one microbatch. An encoder load of 2
// + 4 over two ranks takes 3 forward and 6 backward. LLM rank 1 is slower, with 5 and 10: 3 + 5 + 10 + 6.
TEST(LoadPipeline, SharedEncoderWaitsForeveryDpRank) {
  const LoadPipeline pipeline = simple_load_pipeline({OrderKind::one_f_one_b, 2, 1, 1}, 1, 2, 2, 2.0);
  const std::vector<double> encoder_s = {2, 4};
  const std::vector<double> llm_s = {1, 5};
  const std::vector<std::int32_t> bin = {0, 1};
  const LoadTable loads = load_table(pipeline, {encoder_s, llm_s}, bin);
  EXPECT_EQ(loads, (LoadTable{{6}, {1, 5}}));
  EXPECT_DOUBLE_EQ(makespan(pipeline, loads), 24.0);
}

// If each replica has an encoder, the slowest replica sets the makespan: rank 0 takes (2 + 1) * 3, rank 1
// (4 + 5) * 3.
TEST(LoadPipeline, ReplicasAreIndependent) {
  const LoadPipeline pipeline = simple_load_pipeline({OrderKind::one_f_one_b, 2, 1, 1}, 1, 2, 0, 2.0);
  EXPECT_DOUBLE_EQ(makespan(pipeline, {{2, 4}, {1, 5}}), 27.0);
}

// Two microbatches of 4 and 1 on one rank, forward 1 and backward 2 per unit: F0 until 4, B0 until 12, F1
// until 13, B1 until 15, and a tail of 1. The overlapped part begins a quarter into B1, at 13.5, takes 6 and
// has a tail of 0.5: the end is at 20. With the microbatches swapped, B1 runs from 7 to 15 and is a quarter
// done at 9: the end is the rank's own tail, at 16.
TEST(LoadPipeline, AnOverlappedTailBeginsDuringTheLastStep) {
  LoadPipeline pipeline = simple_load_pipeline({OrderKind::one_f_one_b, 1, 1, 2}, 0, 1, 0, 2.0);
  pipeline.tail_s = {1.0};
  add_overlapped_tail(pipeline, 0, {.part = 0.25, .seconds = 6, .tail_s = 0.5});
  EXPECT_EQ(pipeline.ranks(), 2);
  EXPECT_EQ(pipeline.links, 1);
  EXPECT_DOUBLE_EQ(makespan(pipeline, {{0, 0}, {4, 1}}), 20.0);
  EXPECT_DOUBLE_EQ(makespan(pipeline, {{0, 0}, {1, 4}}), 16.0);
}

// Rank 0's last backward waits for rank 1's. F0 F1 run on rank 0 until 2, B1 on rank 1 from 5 to 7 and on
// rank 0 until 9. Rank 1's reductions begin at 6 and end at 16.
TEST(LoadPipeline, DependentsOfAnOverlappedStepWaitForItsEnd) {
  LoadPipeline pipeline = simple_load_pipeline({OrderKind::one_f_one_b, 2, 1, 2}, 0, 1, 0, 2.0);
  EXPECT_DOUBLE_EQ(makespan(pipeline, {{0, 0}, {1, 1}}), 9.0);
  add_overlapped_tail(pipeline, 1, {.part = 0.5, .seconds = 1, .tail_s = 0});
  EXPECT_DOUBLE_EQ(makespan(pipeline, {{0, 0}, {1, 1}}), 9.0);
  pipeline = simple_load_pipeline({OrderKind::one_f_one_b, 2, 1, 2}, 0, 1, 0, 2.0);
  add_overlapped_tail(pipeline, 1, {.part = 0.5, .seconds = 10, .tail_s = 0});
  EXPECT_DOUBLE_EQ(makespan(pipeline, {{0, 0}, {1, 1}}), 16.0);
}

// Times are whole nanoseconds, which both the engine and a double represent exactly.
TEST(LoadPipeline, OneReplicaEqualsTheEnginesSimulation) {
  Random random(1);
  for (int round = 0; round < 300; ++round) {
    const OrderKind kind = testing::draw_order(random, testing::is_fixed_chain);
    PipelineShape shape{kind, 1 + static_cast<int>(random.below(5)), 1,
                        1 + static_cast<int>(random.below(9))};
    if (traits(kind).has_chunks()) shape.chunks = 2 + static_cast<int>(random.below(3));
    const int stages = shape.stages();
    std::vector<StageLoadTimes> times(stages);
    LoadTable loads(2, std::vector<double>(shape.microbatches));
    for (auto& load : loads) {
      for (double& value : load) value = static_cast<double>(random.below(1000));
    }
    RawPipeline raw;
    raw.shape = shape;
    if (splits_backward(kind)) raw.backward_weight.emplace();
    for (StageLoadTimes& stage : times) {
      const auto time = [&] {
        return LoadTime{static_cast<double>(random.below(50)), static_cast<double>(1 + random.below(3)),
                        static_cast<std::int32_t>(random.below(2))};
      };
      stage.forward = time();
      stage.backward = time();
      stage.backward_weight = time();
      const auto row = [&](const LoadTime& t) {
        std::vector<Seconds> values;
        for (int j = 0; j < shape.microbatches; ++j) values.emplace_back(t.at(loads[t.load][j]) * 1e-9);
        return values;
      };
      raw.forward.rows.push_back(row(stage.forward));
      raw.backward.rows.push_back(row(stage.backward));
      if (raw.backward_weight) raw.backward_weight->rows.push_back(row(stage.backward_weight));
    }
    const LoadPipeline pipeline =
        make_load_pipeline({shape, pipeline_steps(shape)}, 1, {{{}, false}, {{}, false}}, times,
                           std::vector<double>(shape.all_ranks(), 0.0));
    const PricedProgram priced = make_program(raw);
    const Timeline timeline = simulate(priced.program, priced.costs, Detail::usage);
    EXPECT_EQ(makespan(pipeline, loads), static_cast<double>(timeline.makespan.count())) << to_string(kind);
  }
}

}  // namespace load_pipeline_test
}  // namespace dflop
