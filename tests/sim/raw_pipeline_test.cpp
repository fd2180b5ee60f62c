// Raw pipelines in the engine: closed forms for every schedule, and the longest-path reference.
#include "core/program/raw_pipeline.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/program/lowering.hpp"
#include "sim/engine.hpp"
#include "tests/core/pipelines.hpp"
#include "tests/sim/reference.hpp"

namespace dflop::testing {
namespace raw_pipeline_test {

constexpr Nanoseconds kUnit{1'000'003};

Timeline run(const RawPipeline& pipeline, Detail detail = Detail::usage) {
  const PricedProgram priced = make_program(pipeline);
  return simulate(priced.program, priced.costs, detail);
}

/// A pipeline of this kind in which a rank's forward, input part and weight part take one unit each in total.
Timeline run_units(OrderKind kind, int ranks, int microbatches, Detail detail = Detail::usage) {
  const int chunks = std::max(1, traits(kind).chunks);  // one if a rank can have any number
  const Nanoseconds step = 2 * kUnit / chunks;          // even, so that halves are whole
  return run(equal_pipeline({kind, ranks, chunks, microbatches}, step, step, step), detail);
}

/// Calls check(p, m) for p ranks and m microbatches.
template <typename Check>
void for_each_size(const Check& check) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 24; ++m) {
      SCOPED_TRACE("p " + std::to_string(p) + " m " + std::to_string(m));
      check(p, m);
    }
  }
}

// The last stage begins after (p - 1) tf, works m (tf + tb) without a pause, and its last gradient needs
// (p - 1) tb to reach stage 0: (m + p - 1)(tf + tb), where tb is both parts of a backward.
TEST(RawPipeline, GpipeAndOneFOneBMeetTheClosedForm) {
  for_each_size([](int p, int m) {
    for (const OrderKind kind : {OrderKind::gpipe, OrderKind::one_f_one_b}) {
      const Timeline timeline =
          run(equal_pipeline({kind, p, 1, m}, Nanoseconds(101), Nanoseconds(97), Nanoseconds(55)));
      EXPECT_EQ(timeline.makespan, (m + p - 1) * Nanoseconds(101 + 97 + 55));
    }
  });
}

// A chunk takes tf and tb, a rank v m (tf + tb). The last rank waits (p - 1) tf for its first chunk, then
// always has a forward or backward to run, and its last gradient takes (p - 1) tb to reach rank 0: a bubble
// of (p - 1)(tf + tb), which is (p - 1) / (v m) of the busy time. With m < p microbatches, each chunk after
// the first also waits for its previous chunk, which takes p steps for m microbatches: p - m more steps of
// either kind.
TEST(RawPipeline, InterleavedHasABubbleSmallerByItsChunks) {
  for (int p = 1; p <= 8; ++p) {
    for (int v = 2; v <= 4; ++v) {
      for (int m = 1; m <= 24; ++m) {
        const Nanoseconds both(101 + 97);
        const Timeline timeline = run(equal_pipeline({OrderKind::interleaved, p, v, m}, Nanoseconds(101),
                                                     Nanoseconds(97), Nanoseconds(0)));
        for (const GroupUsage& usage : timeline.groups) {
          EXPECT_EQ(usage.busy, v * m * both);
          const int waits = p - 1 + (v - 1) * std::max(0, p - m);
          EXPECT_EQ(usage.bubble, waits * both) << "p " << p << " v " << v << " m " << m;
          if (m < p) continue;
          EXPECT_DOUBLE_EQ(static_cast<double>(usage.bubble.count()) * v * m,
                           static_cast<double>(usage.busy.count()) * (p - 1));
        }
      }
    }
  }
}

// F = B = W = 1: 1F1B is idle for (p - 1)(F + B + W) = 3 (p - 1) on every rank. In ZB-H1 rank r waits r F for
// its first input and p - 1 - r for its first gradient, and weight parts fill every later gap: p - 1, one
// third. This needs p microbatches.
TEST(RawPipeline, ZbH1HasAThirdOfTheBubbleOfOneFOneB) {
  for_each_size([](int p, int m) {
    const Timeline whole = run_units(OrderKind::one_f_one_b, p, m);
    const Timeline split = run_units(OrderKind::zb_h1, p, m);
    EXPECT_LE(split.makespan, whole.makespan);
    if (m < p) return;
    for (int r = 0; r < p; ++r) {
      EXPECT_EQ(split.groups[r].bubble, (p - 1) * 2 * kUnit);
      EXPECT_EQ(whole.groups[r].bubble, 3 * split.groups[r].bubble);
    }
  });
}

/// From the start of the rank's first step to the end of its last.
Nanoseconds span_of_rank(const Timeline& timeline, int rank) {
  Nanoseconds begin = timeline.makespan;
  Nanoseconds end{0};
  for (const Span& span : timeline.spans) {
    if (span.rank != rank || span.stream != Stream::compute) continue;
    begin = std::min(begin, span.start);
    end = std::max(end, span.start + span.duration);
  }
  return end - begin;
}

// F = B = W = 1 and m >= 2p - 1. Rank r starts at r and its first gradient arrives at 2p - 1 - r: p until the
// last forward ends, one backward, and p - 1 - r more on the way back. Its first 2 (p - r) - 1 forwards fill
// exactly this time, so no rank pauses between its first and its last step. The makespan cannot show this,
// since the last rank begins after p - 1: it is 3m + p - 1, as for ZB-H1. With fewer microbatches ZB-H2
// equals ZB-H1.
TEST(RawPipeline, ZbH2HasNoBubbleInsideAnyRank) {
  for_each_size([](int p, int m) {
    const Timeline timeline = run_units(OrderKind::zb_h2, p, m, Detail::spans);
    EXPECT_EQ(timeline.makespan, run_units(OrderKind::zb_h1, p, m).makespan);
    if (m < 2 * p - 1) return;
    for (int r = 0; r < p; ++r) EXPECT_EQ(span_of_rank(timeline, r), timeline.groups[r].busy);
    EXPECT_EQ(timeline.makespan, (3 * m + p - 1) * 2 * kUnit);
  });
}

// Chunks of half a unit. Rank p - 1 gets its first input after p - 1 of them, so no order is shorter than 3m
// + (p - 1) / 2. ZB-V needs no more memory than 1F1B, 2p chunks. The first microbatch goes down and up the V
// and returns to the first rank in 2p chunks, of which it fills 2p - 1 with first chunks. So from 2p - 1
// microbatches on, no rank pauses between its first and its last step, and the makespan is the shortest
// possible.
TEST(RawPipeline, ZbVHasNoBubbleInsideAnyRankWithTheMemoryOfOneFOneB) {
  for_each_size([](int p, int m) {
    const Timeline timeline = run_units(OrderKind::zb_v, p, m, Detail::spans);
    EXPECT_LE(timeline.makespan, run_units(OrderKind::zb_h1, p, m).makespan);
    EXPECT_LE(peak_memory(timeline), Bytes{std::min(2 * p, 2 * m)});
    EXPECT_GE(timeline.makespan, (6 * m + p - 1) * kUnit);
    if (m < 2 * p - 1) return;
    for (int r = 0; r < p; ++r) EXPECT_EQ(span_of_rank(timeline, r), timeline.groups[r].busy);
    EXPECT_EQ(timeline.makespan, (6 * m + p - 1) * kUnit);
  });
}

TEST(RawPipeline, EqualsTheLongestPathsWhateverTheDurations) {
  Random random(11);
  for_each_shape(5, 10, 3, [&](const PipelineShape& shape) {
    const PricedProgram priced = make_program(random_pipeline(random, shape));
    const Timeline timeline = simulate(priced.program, priced.costs, Detail::spans);
    const Reference reference = make_reference({priced.program, priced.costs});
    EXPECT_EQ(timeline.makespan, reference.makespan);
    EXPECT_EQ(timeline.groups, reference.groups);
  });
}

// With any schedule, a rank works as long as the rows of its stages add up to.
TEST(RawPipeline, IsBusyAsLongAsInItsTables) {
  Random random(12);
  for_each_shape(5, 10, 3, [&](const PipelineShape& shape) {
    const RawPipeline pipeline = random_pipeline(random, shape);
    std::vector<Nanoseconds> busy(shape.ranks, Nanoseconds(0));
    const int encoder = shape.spreads_encoder() ? 1 : 0;
    for (int j = 0; j < shape.microbatches; ++j) {
      for (int s = 0; s < shape.ranks * shape.chunks; ++s) {
        for (const auto* table : {&pipeline.forward, &pipeline.backward, &*pipeline.backward_weight}) {
          busy[rank_of_stage(shape, s + encoder)] += to_nanoseconds(table->at(s, j));
        }
      }
      if (!pipeline.encoder) continue;
      busy[j % shape.ranks] += to_nanoseconds(pipeline.encoder->forward.at(0, j));
      busy[j % shape.ranks] += to_nanoseconds(pipeline.encoder->backward.at(0, j));
    }
    const Timeline timeline = run(pipeline);
    for (int r = 0; r < shape.ranks; ++r) EXPECT_EQ(timeline.groups[r].busy, busy[r]);
  });
}

// 2 stages, 1 microbatch with F 10 and B 20: 10 + message + 10 + 20 + message + 20. 5 bytes at 1 byte per
// nanosecond after 3 ns of latency: 8.
TEST(RawPipeline, MessagesTakeLatencyAndBandwidth) {
  RawPipeline pipeline =
      equal_pipeline({OrderKind::one_f_one_b, 2, 1, 1}, Nanoseconds(10), Nanoseconds(15), Nanoseconds(5));
  EXPECT_EQ(run(pipeline).makespan, Nanoseconds(60));
  pipeline.message = same(Bytes{5});
  pipeline.link = RawLink{Seconds(Nanoseconds(3)), 1e9};
  const Timeline timeline = run(pipeline);
  EXPECT_EQ(timeline.makespan, Nanoseconds(76));
  EXPECT_EQ(timeline.groups[0].wait, Nanoseconds(8));
  EXPECT_EQ(timeline.groups[0].transfer, Nanoseconds(16));
}

// Stages p - 1 and p of ZB-V are on one rank: only the other 2p - 2 boundaries have messages.
TEST(RawPipeline, StagesOfOneRankSendNothing) {
  const RawPipeline pipeline =
      equal_pipeline({OrderKind::zb_v, 3, 2, 4}, Nanoseconds(1), Nanoseconds(1), Nanoseconds(1));
  EXPECT_EQ(make_program(pipeline).program.messages.size(), 2u * 4 * 4);
  const RawPipeline alone =
      equal_pipeline({OrderKind::interleaved, 1, 3, 4}, Nanoseconds(1), Nanoseconds(1), Nanoseconds(1));
  EXPECT_TRUE(make_program(alone).program.messages.empty());
}

}  // namespace raw_pipeline_test
}  // namespace dflop::testing
