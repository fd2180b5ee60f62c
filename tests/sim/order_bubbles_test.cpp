// Bubbles of schedules over several iterations, with messages and with an encoder that fills bubbles.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/program/lowering.hpp"
#include "core/program/raw_pipeline.hpp"
#include "sim/engine.hpp"
#include "tests/core/pipelines.hpp"

namespace dflop::testing {
namespace order_bubbles_test {

Timeline run(const RawPipeline& pipeline, const PipelineOrder& order) {
  const PricedProgram priced = make_program(pipeline, order);
  verify(priced.program);
  return simulate(priced.program, priced.costs, Detail::usage);
}

Timeline run(const RawPipeline& pipeline) {
  return run(pipeline, pipeline_order(pipeline));
}

/// Runs `iterations` of the pipeline's order one after the other on every rank, without a barrier between
/// them. A rank begins its next iteration when its own part of the last one is done, as is possible if the
/// optimizer step is validated later (Qi et al. 2023, section 4).
Nanoseconds makespan_of_iterations(const RawPipeline& pipeline, int iterations) {
  const PipelineOrder one = pipeline_order(pipeline);
  const int m = one.shape.microbatches;
  RawPipeline longer = pipeline;
  longer.shape.microbatches = iterations * m;
  PipelineOrder all{longer.shape, std::vector<std::vector<OrderStep>>(one.ranks.size())};
  for (std::size_t r = 0; r < one.ranks.size(); ++r) {
    for (int k = 0; k < iterations; ++k) {
      for (OrderStep step : one.ranks[r]) {
        step.microbatch += k * m;
        all.ranks[r].push_back(step);
      }
    }
  }
  return run(longer, all).makespan;
}

/// How much longer the run gets with each iteration, which is the same for all after the first.
Nanoseconds period(const RawPipeline& pipeline) {
  Nanoseconds last{0};
  for (int k = 2; k <= 4; ++k) {
    const Nanoseconds one = makespan_of_iterations(pipeline, k + 1) - makespan_of_iterations(pipeline, k);
    if (k > 2) {
      EXPECT_EQ(one, last);
    }
    last = one;
  }
  return last;
}

// F = B = W = 2 units with one stage per rank (1 for each of two chunks), p ranks, m microbatches: 6m units
// of work on every rank.
//   1F1B: rank 0 waits for its own last gradient, so (m + p - 1) 6 pass before it begins again.
//   ZB-H1: weight parts fill all but (p - 1) 2 of this idle time: 6m + 2 (p - 1).
//   ZB-H2: no rank pauses between its first and last step, and rank r begins 2r after rank 0 in every
//   iteration: 6m, the minimum of any order.
TEST(SteadyState, OfZbH2HasNoBubbleUnlikeOneFOneBAndZbH1) {
  for (int p = 1; p <= 6; ++p) {
    for (const int m : {2 * p - 1, 2 * p, 3 * p + 1}) {
      SCOPED_TRACE("p " + std::to_string(p) + " m " + std::to_string(m));
      const auto period_of = [&](OrderKind kind) {
        return period(equal_pipeline({kind, p, 1, m}, Nanoseconds(2), Nanoseconds(2), Nanoseconds(2)));
      };
      EXPECT_EQ(period_of(OrderKind::one_f_one_b), Nanoseconds(6 * (m + p - 1)));
      EXPECT_EQ(period_of(OrderKind::zb_h1), Nanoseconds(6 * m + 2 * (p - 1)));
      EXPECT_EQ(period_of(OrderKind::zb_h2), Nanoseconds(6 * m));
    }
  }
}

// The same work in two chunks of half the size: rank r begins r after rank 0 in every iteration and does not
// pause before it ends, with half the memory of ZB-H2.
TEST(SteadyState, OfZbVHasNoBubble) {
  for (int p = 1; p <= 8; ++p) {
    for (const int m : {2 * p - 1, 2 * p, 2 * p + 1, 3 * p + 1, 5 * p}) {
      SCOPED_TRACE("p " + std::to_string(p) + " m " + std::to_string(m));
      EXPECT_EQ(
          period(equal_pipeline({OrderKind::zb_v, p, 2, m}, Nanoseconds(1), Nanoseconds(1), Nanoseconds(1))),
          Nanoseconds(6 * m));
    }
  }
}

/// Forward 10, backward 20, and messages of `message` on every boundary.
RawPipeline with_messages(OrderKind kind, int p, int m, Nanoseconds message) {
  RawPipeline pipeline = equal_pipeline({kind, p, 1, m}, Nanoseconds(10), Nanoseconds(20), Nanoseconds(0));
  pipeline.link = RawLink{Seconds(message), 1e9};
  return pipeline;
}

// 2 ranks, 4 microbatches, messages 3.
//   eager: rank 0 runs F0 F1 F2 in 0-30; rank 1 always has its next input and works 13-133; its last
//   gradient reaches rank 0 at 136, which ends at 156.
//   1F1B: rank 0 runs F0 F1 in 0-20, B0 46-66 (gradient at 43 + 3) and only then F2 66-76, for which rank 1
//   waits from 73 to 79: B2 ends at 109, F3 (sent at 106) 109-119, B3 139, and on rank 0 142-162.
TEST(EagerOneFOneB, HidesTheMessagesThatOneFOneBWaitsFor) {
  const Nanoseconds message(3);
  EXPECT_EQ(run(with_messages(OrderKind::eager_1f1b, 2, 4, message)).makespan, Nanoseconds(156));
  EXPECT_EQ(run(with_messages(OrderKind::one_f_one_b, 2, 4, message)).makespan, Nanoseconds(162));
}

TEST(EagerOneFOneB, IsNeverSlowerThanOneFOneBOnEqualStages) {
  for (int p = 1; p <= 6; ++p) {
    for (int m = 1; m <= 14; ++m) {
      for (const int message : {0, 1, 4, 10, 15, 40}) {
        SCOPED_TRACE("p " + std::to_string(p) + " m " + std::to_string(m) + " message " +
                     std::to_string(message));
        EXPECT_LE(run(with_messages(OrderKind::eager_1f1b, p, m, Nanoseconds(message))).makespan,
                  run(with_messages(OrderKind::one_f_one_b, p, m, Nanoseconds(message))).makespan);
      }
    }
  }
}

// With any limits each rank holds at least as many as in 1F1B. If two ranks held equally many beyond that,
// each forward of the second would wait for the last backward of the first: with 5, 5, 5, 3, 1 of 12
// microbatches in place of 5, 4, 3, 2, 1 the run would be 1.8 times as long.
TEST(EagerOneFOneB, IsNeverSlowerThanOneFOneBWhateverItsLimits) {
  Random random(9);
  for (int round = 0; round < 500; ++round) {
    const int p = 1 + static_cast<int>(random.below(6));
    const int m = 1 + static_cast<int>(random.below(14));
    const Nanoseconds message(random.below(20));
    RawPipeline eager = with_messages(OrderKind::eager_1f1b, p, m, message);
    std::string limits;
    for (int r = 0; r < p; ++r) {
      eager.activation_limit.push_back(p - r + static_cast<int>(random.below(p)));
      limits += " " + std::to_string(eager.activation_limit.back());
    }
    EXPECT_LE(run(eager).makespan, run(with_messages(OrderKind::one_f_one_b, p, m, message)).makespan)
        << "m " << m << " message " << message.count() << " limits" << limits;
  }
}

// One byte of activations per microbatch: the peak is the number of microbatches held at once.
TEST(EagerOneFOneB, KeepsItsActivationLimits) {
  Random random(8);
  for (int round = 0; round < 200; ++round) {
    const int p = 1 + static_cast<int>(random.below(6));
    const PipelineShape shape{OrderKind::eager_1f1b, p, 1, 1 + static_cast<int>(random.below(15))};
    RawPipeline pipeline = random_pipeline(random, shape);
    pipeline.activation = same(Bytes{1});
    for (int r = 0; r < p; ++r) pipeline.activation_limit.push_back(1 + static_cast<int>(random.below(10)));
    const Timeline timeline = run(pipeline);
    for (int r = 0; r < p; ++r) {
      EXPECT_LE(timeline.groups[r].peak_memory,
                Bytes{std::min(pipeline.activation_limit[r], 2 * (p - r) - 1)});
    }
  }
}

RawPipeline with_encoder(int p, int m, int forward, int backward, int encoder_forward, int encoder_backward,
                         OrderKind kind = OrderKind::encoder_in_bubbles) {
  RawPipeline pipeline =
      equal_pipeline({kind, p, 1, m}, Nanoseconds(forward), Nanoseconds(backward), Nanoseconds(0));
  pipeline.encoder =
      RawEncoder{same(Seconds(Nanoseconds(encoder_forward))), same(Seconds(Nanoseconds(encoder_backward)))};
  return pipeline;
}

// 2 ranks, 4 microbatches, LLM forward 1 and backward 2, encoder 1 and 1 (f and b). Rank 0 encodes 0 and 2.
//   rank 0: f0 0-1, F0 1-2, F1 2-3, f2 3-4, idle, B0 5-7, F2 7-8, B1 8-10, F3 10-11, B2 11-13, b0 13-14,
//           B3 14-16, b2 16-17
//   rank 1: f1 0-1, f3 1-2, F0 2-3, B0 3-5, F1 5-6, B1 6-8, F2 8-9, B2 9-11, F3 11-12, B3 12-14, b1 14-15,
//           idle, b3 16-17
// All encoder forwards first and all encoder backwards last would take 2 + (4 + 2 - 1) 3 + 2 = 19.
TEST(EncoderInBubbles, FillsTheIdleTimeOfTheLlm) {
  const RawPipeline pipeline = with_encoder(2, 4, 1, 2, 1, 1);
  const Timeline timeline = run(pipeline);
  EXPECT_EQ(timeline.makespan, Nanoseconds(17));
  EXPECT_EQ(timeline.groups[0].busy, Nanoseconds(16));
  EXPECT_EQ(timeline.groups[1].busy, Nanoseconds(16));
  const std::vector<OrderStep> expected = {{Op::forward, 0, 1},  {Op::forward, 0, 3},  {Op::forward, 2, 0},
                                           {Op::backward, 2, 0}, {Op::forward, 2, 1},  {Op::backward, 2, 1},
                                           {Op::forward, 2, 2},  {Op::backward, 2, 2}, {Op::forward, 2, 3},
                                           {Op::backward, 2, 3}, {Op::backward, 0, 1}, {Op::backward, 0, 3}};
  EXPECT_EQ(pipeline_order(pipeline).ranks[1], expected);
}

// The serial plan on the same ranks: ceil(m / p) encoder forwards on each, then the LLM's 1F1B, then as many
// encoder backwards.
TEST(EncoderInBubbles, IsNeverSlowerThanTheEncoderBeforeAndAfterTheLlm) {
  Random random(9);
  for (int round = 0; round < 500; ++round) {
    const auto pick = [&](int most) { return static_cast<int>(1 + random.below(most)); };
    const int p = pick(5);
    const int m = pick(16);
    const int f = pick(20);
    const int b = pick(40);
    const int ef = pick(20);
    const int eb = pick(40);
    SCOPED_TRACE("p " + std::to_string(p) + " m " + std::to_string(m) + " f " + std::to_string(f) + " b " +
                 std::to_string(b) + " ef " + std::to_string(ef) + " eb " + std::to_string(eb));
    const int each = (m + p - 1) / p;
    EXPECT_LE(run(with_encoder(p, m, f, b, ef, eb)).makespan,
              Nanoseconds(each * (ef + eb) + (m + p - 1) * (f + b)));
  }
}

// With p ranks, each of which encodes at most n = ceil(m / p) microbatches, the first rank runs n encoder
// forwards, the LLM's 1F1B of m + p - 1 forwards and backwards, and n encoder backwards.
TEST(ThreePhase, TakesItsThreePhases) {
  Random random(10);
  for (int round = 0; round < 200; ++round) {
    const auto pick = [&](int most) { return static_cast<int>(1 + random.below(most)); };
    const int p = pick(5), m = pick(16), f = pick(20), b = pick(40), ef = pick(20), eb = pick(40);
    const int each = (m + p - 1) / p;
    EXPECT_EQ(run(with_encoder(p, m, f, b, ef, eb, OrderKind::three_phase)).makespan,
              Nanoseconds(each * (ef + eb) + (m + p - 1) * (f + b)));
  }
}

// Two ranks, four microbatches, LLM forward 1 and backward 2, encoder 1 and 1 (f and b).
//   rank 0: f0 0-1, F0 1-2, F1 2-3, idle, B0 5-7, f2 7-8, F2 8-9, B1 9-11, b0 11-12, F3 12-13, B2 13-15,
//   idle,
//           B3 16-18, b2 18-19
//   rank 1: f1 0-1, idle, F0 2-3, B0 3-5, f3 5-6, F1 6-7, B1 7-9, F2 9-10, B2 10-12, b1 12-13, F3 13-14,
//           B3 14-16, idle, b3 18-19
TEST(OnDemand, RunsUnitsInsideTheLlmsOrder) {
  const Timeline timeline = run(with_encoder(2, 4, 1, 2, 1, 1, OrderKind::on_demand));
  EXPECT_EQ(timeline.groups[0].busy, Nanoseconds(16));
  EXPECT_EQ(timeline.groups[1].busy, Nanoseconds(16));
  EXPECT_EQ(timeline.makespan, Nanoseconds(19));
}

}  // namespace order_bubbles_test
}  // namespace dflop::testing
