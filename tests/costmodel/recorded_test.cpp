#include "costmodel/recorded/recorded.hpp"

#include <gtest/gtest.h>

#include "core/support/random.hpp"
#include "costmodel/correction/corrected.hpp"
#include "tests/costmodel/fixtures.hpp"

namespace dflop {
namespace recorded_test {

/// A forward takes 1 s per LLM token and 3 s per encoder token, all other compute twice as long. A message or
/// collective takes 1 s per byte, an optimizer step 5 s.
class TokenCost final : public CostModel {
 public:
  Seconds compute(Op op, const Stage&, const Work& work) const override {
    return Seconds((op == Op::forward ? 1.0 : 2.0) *
                   static_cast<double>(work.llm.tokens + 3 * work.encoder.tokens));
  }
  Seconds message(const Message& message, const Program&) const override {
    return Seconds(static_cast<double>(message.bytes.count));
  }
  Seconds all_reduce(const Collective& collective, const Program&) const override {
    return Seconds(static_cast<double>(collective.bytes.count));
  }
  Seconds optimizer_step(const Stage&) const override { return Seconds(5); }
  ModelState model_state(const Stage&) const override { return {Bytes{1'000}, {}, {}}; }
  Bytes activation(const Stage&, const Work&) const override { return Bytes{100}; }
  Bytes workspace(Op, const Stage&, const Work&) const override { return Bytes{10}; }
};

Nanoseconds seconds(double value) {
  return to_nanoseconds(Seconds(value));
}

Work llm(std::int64_t tokens) {
  return {{}, {1, tokens, tokens * tokens}};
}

/// One LLM stage of two dp ranks. The first rank has forwards of 10, 10, 20 and 30 tokens, which take 11, 13,
/// 24 and 90 s where TokenCost predicts 10, 10, 20 and 30 s: ratios 1.1, 1.3, 1.2 and 3. In order of ratios
/// the predicted times add up to 10, 30, 40 and 70 s, so 1.3 is the first ratio that covers half of them.
RecordedProgram recording() {
  RecordedProgram recorded;
  recorded.memory = true;
  Program& program = recorded.program;
  program.microbatches = 4;
  program.stages.resize(1);
  program.stages[0].llm_layers = 2;
  program.works = {llm(10), llm(10), llm(20), llm(30)};
  const double took[] = {11, 13, 24, 90};
  for (int g = 0; g < 2; ++g) {
    Group group{g, 1, 0, g, static_cast<std::int64_t>(program.instructions.size()), 0};
    for (int j = 0; g == 0 && j < 4; ++j) {
      program.instructions.push_back({Op::forward, 0, j, j});
      recorded.costs.instruction.push_back(seconds(took[j]));
      recorded.costs.activation.push_back(Bytes{200 + j});
      recorded.costs.workspace.push_back(Bytes{20 + j});
    }
    program.instructions.push_back({Op::optimizer_step, 0, -1, -1});
    recorded.costs.instruction.push_back(seconds(6));
    recorded.costs.activation.push_back({});
    recorded.costs.workspace.push_back({});
    group.end = static_cast<std::int64_t>(program.instructions.size());
    program.groups.push_back(group);
    recorded.costs.model_state.push_back({Bytes{50 + g}, {}, {}});
  }
  program.messages = {{0, 1, 0, Bytes{10}, Bytes{10}}, {0, 1, 1, Bytes{30}, Bytes{30}}};
  recorded.costs.message = {seconds(7), seconds(11)};  // 5 s + 0.2 s per byte
  program.collectives = {{{0, 1}, Bytes{8}}};
  recorded.costs.collective = {seconds(12)};  // 1.5 times TokenCost's
  return recorded;
}

TEST(RecordedCostModel, PricesTheRecordedProgramAsRecorded) {
  const RecordedProgram recorded = recording();
  const TokenCost fallback;
  PricedParts parts;
  const ProgramCosts costs = RecordedCostModel(recorded, fallback).price(recorded.program, parts);
  EXPECT_EQ(costs.instruction, recorded.costs.instruction);
  EXPECT_EQ(costs.message, recorded.costs.message);
  EXPECT_EQ(costs.collective, recorded.costs.collective);
  EXPECT_EQ(costs.model_state, recorded.costs.model_state);
  EXPECT_EQ(costs.activation, recorded.costs.activation);
  EXPECT_EQ(costs.workspace, recorded.costs.workspace);
  EXPECT_EQ(parts.instructions.exact, 6);
  EXPECT_EQ(parts.instructions.total(), 6);
  EXPECT_EQ(parts.messages.exact, 2);
  EXPECT_EQ(parts.messages.total(), 2);
  EXPECT_EQ(parts.collectives.exact, 1);
  EXPECT_EQ(parts.collectives.total(), 1);
}

TEST(RecordedCostModel, PricesByShapeThenByTheMedianRatio) {
  const RecordedProgram recorded = recording();
  const TokenCost fallback;
  const RecordedCostModel model(recorded, fallback);
  Stage stage = recorded.program.stages[0];
  EXPECT_DOUBLE_EQ(model.compute(Op::forward, stage, llm(10)).count(), 12);  // mean of 11 and 13
  EXPECT_DOUBLE_EQ(model.compute(Op::forward, stage, llm(20)).count(), 24);
  // No backward was recorded, so the ratio of all compute on such stages applies.
  EXPECT_DOUBLE_EQ(model.compute(Op::forward, stage, llm(100)).count(), 130);
  EXPECT_DOUBLE_EQ(model.compute(Op::backward, stage, llm(100)).count(), 260);
  stage.tp = 2;  // another shape, although the work is the same
  EXPECT_DOUBLE_EQ(model.compute(Op::forward, stage, llm(10)).count(), 13);
  EXPECT_DOUBLE_EQ(model.optimizer_step(stage).count(), 6);  // 5 s times 6 / 5
  EXPECT_EQ(model.model_state(stage), (ModelState{Bytes{1'000}, {}, {}}));
  EXPECT_EQ(model.activation(stage, llm(10)), Bytes{100});
  EXPECT_EQ(model.workspace(Op::forward, stage, llm(10)), Bytes{10});
}

TEST(RecordedCostModel, TellsKindsOfStagesApart) {
  RecordedProgram recorded = recording();
  // The last forward now belongs to an encoder stage, with 30 tokens and 90 s predicted: ratio 2.
  recorded.program.stages.emplace_back().encoder_layers = 1;
  recorded.program.works[3] = {{1, 30, 900}, {}};
  recorded.program.instructions[3].stage = 1;
  recorded.costs.instruction[3] = seconds(180);
  const TokenCost fallback;
  const RecordedCostModel model(recorded, fallback);
  const Work encoder{{1, 40, 1600}, {}};
  EXPECT_DOUBLE_EQ(model.compute(Op::forward, recorded.program.stages[1], encoder).count(), 240);
  // The remaining ratios are 1.1, 1.2 and 1.3 with 10, 20 and 10 s.
  EXPECT_DOUBLE_EQ(model.compute(Op::forward, recorded.program.stages[0], llm(100)).count(), 120);
  // A stage with both kinds of layers: 100 s of LLM work times 1.2 and 30 s of encoder work times 2.
  Stage both = recorded.program.stages[0];
  both.encoder_layers = 3;
  EXPECT_DOUBLE_EQ(model.compute(Op::forward, both, {{1, 10, 100}, {1, 100, 10'000}}).count(), 120 + 60);
  // No backward was recorded. Over all compute, 40 s have ratios below 2 and 90 s have ratio 2.
  EXPECT_DOUBLE_EQ(model.compute(Op::backward, both, llm(100)).count(), 2 * 200);
}

TEST(RecordedCostModel, CountsWhereItsPricesComeFrom) {
  const RecordedProgram recorded = recording();
  const TokenCost fallback;
  Program other = recorded.program;
  other.instructions[0].microbatch = 7;  // another place with the same shape
  other.works[3] = llm(31);              // another shape
  other.messages[1].bytes = other.messages[1].port_bytes = Bytes{20};
  other.collectives[0].bytes = Bytes{4};
  PricedParts parts;
  const ProgramCosts costs = RecordedCostModel(recorded, fallback).price(other, parts);
  EXPECT_EQ(costs.instruction[0], seconds(12));
  EXPECT_EQ(costs.instruction[3], seconds(31 * 1.3));
  EXPECT_EQ(costs.message[1], seconds(9));     // 5 s + 20 bytes x 0.2 s
  EXPECT_EQ(costs.collective[0], seconds(6));  // 4 s x 1.5
  EXPECT_EQ(parts.instructions.exact, 4);
  EXPECT_EQ(parts.instructions.by_shape, 1);
  EXPECT_EQ(parts.instructions.scaled, 1);
  EXPECT_EQ(parts.messages.exact, 1);
  EXPECT_EQ(parts.messages.by_shape, 1);
  EXPECT_EQ(parts.messages.scaled, 0);
  EXPECT_EQ(parts.collectives.scaled, 1);
  // The maximum that the same shape kept, for the forward and for the instruction that frees it.
  EXPECT_EQ(costs.activation[0], Bytes{201});
  EXPECT_EQ(costs.activation[3], Bytes{100});
}

/// One LLM stage on one rank that ran a forward of 10 tokens, which kept 200, and its backward in two parts,
/// of which the first kept 30 more.
RecordedProgram split_recording() {
  RecordedProgram recorded;
  recorded.memory = true;
  recorded.program.microbatches = 2;
  recorded.program.stages.resize(1);
  recorded.program.stages[0].llm_layers = 2;
  recorded.program.works = {llm(10), llm(20)};
  recorded.program.instructions = {
      {Op::forward, 0, 0, 0}, {Op::backward_input, 0, 0, 0}, {Op::backward_weight, 0, 0, 0}};
  recorded.program.groups = {{0, 1, 0, 0, 0, 3}};
  recorded.costs.instruction.assign(3, Nanoseconds(10));
  recorded.costs.activation = {Bytes{200}, Bytes{30}, Bytes{230}};
  recorded.costs.workspace.resize(3);
  recorded.costs.model_state.resize(1);
  return recorded;
}

// Microbatch 1 has the recorded shape with 10 tokens. With 20 it has the fallback's memory: 100, and split
// backwards keep 45 more.
TEST(RecordedCostModel, PricesTheMemoryOfSplitBackwards) {
  class SplitCost final : public CostModelOver {
   public:
    using CostModelOver::CostModelOver;
    Bytes split_activation(const Stage&, const Work&) const override { return Bytes{145}; }
  };
  const RecordedProgram recorded = split_recording();
  const TokenCost tokens;
  const SplitCost fallback(tokens);
  const RecordedCostModel model(recorded, fallback);
  EXPECT_EQ(model.price(recorded.program).activation, recorded.costs.activation);
  Program other = recorded.program;
  const auto priced = [&](std::int32_t work) {
    for (Instruction& instruction : other.instructions) instruction = {instruction.op, 0, 1, work};
    return model.price(other).activation;
  };
  EXPECT_EQ(priced(0), recorded.costs.activation);
  EXPECT_EQ(priced(1), (std::vector<Bytes>{{100}, {45}, {145}}));
  other.instructions = {{Op::forward, 0, 0, 0}, {Op::backward, 0, 0, 0}};
  other.groups[0].end = 2;
  EXPECT_EQ(model.price(other).activation, (std::vector<Bytes>{{200}, {200}}));
}

// A node has four GPUs: ranks 0 and 1 are on one node, 0 and 4 are not. No message between nodes was
// recorded, so these take the fallback's time times 11 / 30, the ratio of the message with 30 of the 40
// predicted seconds.
TEST(RecordedCostModel, FitsMessagesInsideAndBetweenNodesApart) {
  const RecordedProgram recorded = recording();
  const TokenCost fallback;
  Program other = recorded.program;
  other.groups[1].first_rank = 4;
  const Message message{0, 1, 3, Bytes{20}, Bytes{20}};
  const RecordedCostModel apart(recorded, fallback, fixtures::small_cluster());
  EXPECT_DOUBLE_EQ(apart.message(message, recorded.program).count(), 9);
  EXPECT_DOUBLE_EQ(apart.message(message, other).count(), 20 * (11.0 / 30));
  const RecordedCostModel together(recorded, fallback);
  EXPECT_DOUBLE_EQ(together.message(message, other).count(), 9);
}

LinkFit fit(std::vector<LinkSample> samples) {
  return fit_link(samples).value();
}

TEST(LinkFit, IsTheLineOfLeastSquares) {
  const LinkFit exact = fit({{10, Seconds(7)}, {30, Seconds(11)}, {20, Seconds(9)}});
  EXPECT_DOUBLE_EQ(exact.latency.count(), 5);
  EXPECT_DOUBLE_EQ(exact.seconds_per_byte, 0.2);
  // Mean (1, 2); slope ((-1)(-2) + 0 (1) + (1)(1)) / 2 = 1.5, latency 2 - 1.5. A sample of 0 bytes is pure
  // latency, even if noisy.
  const LinkFit noisy = fit({{0, Seconds(0)}, {1, Seconds(3)}, {2, Seconds(3)}});
  EXPECT_DOUBLE_EQ(noisy.latency.count(), 0.5);
  EXPECT_DOUBLE_EQ(noisy.seconds_per_byte, 1.5);
  EXPECT_TRUE(noisy.has_known_latency);
}

TEST(LinkFit, HasNoNegativePart) {
  // 10 s for 10 bytes and 40 s for 30: a line would begin at -5 s. Through 0 the slope is (100 + 1200) / 1000
  // = 1.3.
  const LinkFit steep = fit({{10, Seconds(10)}, {30, Seconds(40)}});
  EXPECT_DOUBLE_EQ(steep.latency.count(), 0);
  EXPECT_DOUBLE_EQ(steep.seconds_per_byte, 1.3);
  const LinkFit falling = fit({{10, Seconds(40)}, {30, Seconds(10)}});
  EXPECT_DOUBLE_EQ(falling.latency.count(), 25);
  EXPECT_DOUBLE_EQ(falling.seconds_per_byte, 0);
}

// In floating point, a sum of `count` equal sizes divided by `count` is not always that size. With 24 and 48
// transfers, as in FSDP with 8 and 16 equal layers, a spread of 1e-32 bytes remained, and led to a line of
// arbitrary slope.
TEST(LinkFit, OfOneSizeIsBandwidthForAnyNumberOfSamples) {
  for (std::size_t count = 1; count <= 200; ++count) {
    std::vector<LinkSample> samples(count, {2e8 / 3, Seconds(0.004)});
    const LinkFit equal = fit(samples);
    ASSERT_EQ(equal.latency.count(), 0) << count;
    ASSERT_NEAR(equal.duration(2e8 / 3).count(), 0.004, 1e-9) << count;
    ASSERT_FALSE(equal.has_known_latency);
    // Neither noisy times nor sizes that differ, by a padded row or by almost a factor of two, are mistaken
    // for latency.
    Random random(count);
    for (LinkSample& sample : samples) sample.duration *= 0.97 + 0.06 * random.uniform();
    for (const double more : {0.0, 1e-3, 0.999}) {
      for (LinkSample& sample : samples) sample.bytes = 2e8 / 3 * (1 + more * random.uniform());
      ASSERT_EQ(fit(samples).latency.count(), 0) << count << ' ' << more;
      ASSERT_FALSE(fit(samples).has_known_latency);
    }
  }
}

// Times of a simulation lie on their line up to rounding to whole nanoseconds: sizes of 10 to 12 MB at 10 us
// + 0.1 ns per byte recover both.
TEST(LinkFit, WithoutNoiseANarrowRangeIsEnough) {
  std::vector<LinkSample> samples;
  for (int k = 0; k <= 20; ++k) {
    const double bytes = 1e7 + 1e5 * k;
    samples.push_back({bytes, Seconds(std::round(1e4 + 0.1 * bytes) * 1e-9)});
  }
  const LinkFit line = fit(samples);
  EXPECT_TRUE(line.has_known_latency);
  EXPECT_NEAR(line.latency.count(), 1e-5, 1e-8);
  EXPECT_NEAR(line.seconds_per_byte, 1e-10, 1e-15);
}

// Sizes of 1 to 4, and times proportional to them with 30 % of noise and no latency: any latency of a fitted
// line is within its own error. With a latency of 100 and sizes of 101 to 104 it is not.
TEST(LinkFit, NoiseIsNotTakenForLatency) {
  Random random(7);
  int mistaken = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<LinkSample> samples;
    for (int k = 0; k < 12; ++k) {
      const double bytes = 1 + 3 * k / 11.0;
      samples.push_back({bytes, Seconds(bytes * (0.85 + 0.3 * random.uniform()))});
    }
    mistaken += fit(samples).latency.count() > 0 ? 1 : 0;
    for (LinkSample& sample : samples) sample.duration += Seconds(100);
    EXPECT_NEAR(fit(samples).latency.count(), 100, 2);
  }
  EXPECT_LE(mistaken, 20);  // 2.5 % of 200, doubled twice to allow for chance
}

TEST(LinkFit, OfOneSizeIsBandwidthAndOfNoBytesLatency) {
  const LinkFit one = fit({{10, Seconds(4)}, {10, Seconds(6)}});
  EXPECT_DOUBLE_EQ(one.latency.count(), 0);
  EXPECT_DOUBLE_EQ(one.seconds_per_byte, 0.5);
  EXPECT_FALSE(one.has_known_latency);
  const LinkFit none = fit({{0, Seconds(4)}, {0, Seconds(6)}});
  EXPECT_DOUBLE_EQ(none.latency.count(), 5);
  EXPECT_DOUBLE_EQ(none.seconds_per_byte, 0);
  EXPECT_FALSE(fit_link({}).has_value());
}

// Messages take 5 s + 0.2 s per byte. The only collective has one size, so its 12 s are all bandwidth.
TEST(RescaleLinks, ChangesLatencyAndBandwidthApart) {
  const auto rescaled = [](double latency_scale, double bandwidth_scale) {
    RecordedProgram recorded = recording();
    rescale_links(recorded.program, recorded.costs, std::nullopt, latency_scale, bandwidth_scale);
    return recorded.costs;
  };
  const ProgramCosts slow = rescaled(3, 1);
  EXPECT_EQ(slow.message, (std::vector<Nanoseconds>{seconds(15 + 2), seconds(15 + 6)}));
  EXPECT_EQ(slow.collective[0], seconds(12));
  const ProgramCosts wide = rescaled(1, 2);
  EXPECT_EQ(wide.message, (std::vector<Nanoseconds>{seconds(5 + 1), seconds(5 + 3)}));
  EXPECT_EQ(wide.collective[0], seconds(6));
  EXPECT_EQ(rescaled(1, 1).message, recording().costs.message);
}

// All-to-alls of 20 bytes take 2 s and all-reduces of 80 take 4 s. Each has only one size, so all of it is
// bandwidth, while a line through both would have a latency of 4 / 3 s. The same holds for groups of
// neighboring and of distant ranks.
TEST(RescaleLinks, OperationsAndGroupsThatAreUnlikeShareNoLine) {
  for (const bool same_ranks : {true, false}) {
    Program program;
    program.groups.resize(4);
    for (const bool first : {true, false}) {
      Collective collective;
      collective.groups =
          first || same_ranks ? std::vector<std::int32_t>{0, 1} : std::vector<std::int32_t>{0, 2};
      collective.bytes = Bytes{first ? 20 : 80};
      collective.operation = first || !same_ranks ? 0 : 1;
      program.collectives.push_back(collective);
    }
    ProgramCosts costs;
    costs.collective = {seconds(2), seconds(4)};
    EXPECT_EQ(rescale_links(program, costs, std::nullopt, 1, 2), 2u);
    EXPECT_EQ(costs.collective, (std::vector<Nanoseconds>{seconds(1), seconds(2)}));
  }
}

}  // namespace recorded_test
}  // namespace dflop
