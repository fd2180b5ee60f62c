#include "costmodel/correction/corrected.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "core/iteration/iteration.hpp"
#include "core/support/random.hpp"
#include "costmodel/analytic/analytic.hpp"
#include "costmodel/sample_costs.hpp"
#include "tests/costmodel/fixtures.hpp"

namespace dflop {
namespace corrected_test {

Sample sample_of(std::int64_t tiles, std::int64_t llm_tokens) {
  Sample sample;
  if (tiles > 0) sample.encoder_sequences = {{tiles, 729, 729 * 729}};
  sample.encoder_output_tokens = tiles * 729;
  sample.llm_tokens = llm_tokens + tiles * 729;
  return sample;
}

std::vector<Sample> some_samples(int count) {
  Random random(5);
  std::vector<Sample> samples;
  for (int i = 0; i < count; ++i) {
    samples.push_back(sample_of(static_cast<std::int64_t>(random.below(5)),
                                static_cast<std::int64_t>(50 + random.below(3000))));
  }
  return samples;
}

Plan disaggregated_plan() {
  Plan plan;
  plan.gbs = 24;
  plan.encoder = {1, 1, 2, {27}};
  plan.llm = {2, 2, 3, {16, 16}};
  plan.microbatches = 4;
  return plan;
}

Assignment in_turn(const Plan& plan) {
  Assignment assignment{plan.microbatches, plan.llm.dp, {}};
  for (int i = 0; i < plan.gbs; ++i) assignment.bin.push_back(i % plan.bins());
  return assignment;
}

/// A timeline of a program and its costs, without waits, which the correction ignores.
Timeline timeline_of(const Program& program, const ProgramCosts& costs) {
  Timeline timeline;
  timeline.stage_shapes = program.stages;
  timeline.works = program.works;
  for (const Group& group : program.groups) {
    GroupUsage usage;
    usage.first_rank = group.first_rank;
    usage.dp_rank = group.dp_rank;
    timeline.groups.push_back(usage);
    for (std::int64_t i = group.begin; i < group.end; ++i) {
      const Instruction& instruction = program.instructions[i];
      if (!is_compute(instruction.op)) continue;
      Span span;
      span.rank = group.first_rank;
      span.op = instruction.op;
      span.stage = instruction.stage;
      span.microbatch = instruction.microbatch;
      span.duration = costs.instruction[i];
      span.work = instruction.index;
      timeline.spans.push_back(span);
    }
  }
  return timeline;
}

/// Hardware on which some samples take longer: `forward_s` more forward and twice that backward, on each
/// stage of their module.
class SlowSamples final : public CostModelOver {
 public:
  SlowSamples(const CostModel& base, bool encoder, ShapeBucket bucket, double forward_s)
      : CostModelOver(base), encoder_(encoder), bucket_(bucket), forward_s_(forward_s) {}

  Seconds sample_excess(Op op, const Stage& stage, const Sample& sample) const override {
    if ((encoder_ ? stage.encoder_layers : stage.llm_layers) == 0) return Seconds(0);
    const Workload work = encoder_ ? sample.encoder() : sample.llm();
    if (work.empty() || bucket_of(encoder_, work) != bucket_) return Seconds(0);
    return Seconds(op == Op::forward ? forward_s_ : 2 * forward_s_);
  }

 private:
  bool encoder_;
  ShapeBucket bucket_;
  double forward_s_;
};

struct Setting {
  ModelSpec model = fixtures::llava_llama3_8b();
  AnalyticCostModel base{model, fixtures::a100_cluster()};
  Plan plan = disaggregated_plan();
  std::vector<Sample> samples = some_samples(24);
  ClusterSpec cluster = fixtures::a100_cluster();
  Iteration iteration = make_iteration({model, cluster, base}, plan, samples, in_turn(plan));

  /// Shuffles the assignment in every iteration, so that samples share microbatches with different ones.
  void teach(Correction& correction, const CostModel& hardware, int iterations) {
    Random random(9);
    for (int k = 0; k < iterations; ++k) {
      Assignment assignment = iteration.assignment;
      random.shuffle(std::span(assignment.bin));
      iteration = make_iteration({model, cluster, hardware}, plan, samples, assignment);
      correction.learn(timeline_of(iteration.program, iteration.costs), base, plan, samples, assignment);
    }
  }
};

TEST(CorrectedCostModel, WithoutObservationsEqualsTheBase) {
  Setting s;
  const Correction nothing;
  const CorrectedCostModel corrected(s.base, nothing);
  const ProgramCosts a = s.base.price(s.iteration.program);
  const ProgramCosts b = price(corrected, s.iteration);
  EXPECT_EQ(a.instruction, b.instruction);
  EXPECT_EQ(a.message, b.message);
  EXPECT_EQ(a.collective, b.collective);
  EXPECT_EQ(a.activation, b.activation);
  EXPECT_EQ(a.workspace, b.workspace);
  EXPECT_EQ(a.model_state, b.model_state);
  const SampleCosts of_base = sample_costs(s.base, s.plan, s.model, s.samples);
  const SampleCosts of_corrected = sample_costs(corrected, s.plan, s.model, s.samples);
  EXPECT_EQ(of_base.encoder_s, of_corrected.encoder_s);
  EXPECT_EQ(of_base.llm_s, of_corrected.llm_s);
  for (const Op op : {Op::forward, Op::backward, Op::backward_input, Op::backward_weight}) {
    for (const Stage& stage : s.iteration.program.stages) {
      EXPECT_EQ(corrected.compute(op, stage, s.iteration.program.works.back()),
                s.base.compute(op, stage, s.iteration.program.works.back()));
      EXPECT_EQ(corrected.convex_floor(op, stage, s.iteration.program.works.back()),
                s.base.convex_floor(op, stage, s.iteration.program.works.back()));
    }
  }
}

TEST(CorrectedCostModel, LearnsNothingIfPredictionsAreRight) {
  Setting s;
  Correction correction;
  s.teach(correction, s.base, 3);
  // Rounding to whole nanoseconds differs from the model's seconds by 1e-9 s, for durations of milliseconds.
  for (const Op op : {Op::forward, Op::backward}) {
    for (const StageKind kind : {StageKind::encoder, StageKind::llm}) {
      EXPECT_NEAR(correction.level(kind, op), 1, 1e-5);
    }
  }
}

TEST(CorrectedCostModel, LearnsTheExcessOfASlowSample) {
  // One LLM bucket is 0.1 s slower forward and 0.2 s backward, on each of two stages. The schedulers' cost of
  // its samples must grow by 0.3 s, and the cost of the others must not grow. The tolerance is what the prior
  // of one sample retains after 60 iterations: a share of at most about 1 / (0.5 x 60).
  Setting s;
  const ShapeBucket slow = bucket_of(false, s.samples[7].llm());
  const SlowSamples hardware(s.base, false, slow, 0.1);
  Correction correction;
  s.teach(correction, hardware, 60);
  const CorrectedCostModel corrected(s.base, correction);
  const SampleCosts before = sample_costs(s.base, s.plan, s.model, s.samples);
  const SampleCosts truth = sample_costs(hardware, s.plan, s.model, s.samples);
  const SampleCosts after = sample_costs(corrected, s.plan, s.model, s.samples);
  EXPECT_NEAR(truth.llm_s[7] - before.llm_s[7], 0.3, 1e-9);
  for (std::size_t i = 0; i < s.samples.size(); ++i) {
    EXPECT_NEAR(after.llm_s[i], truth.llm_s[i], 0.03) << i;
    EXPECT_NEAR(after.encoder_s[i], truth.encoder_s[i], 1e-3) << i;
  }
}

TEST(CorrectedCostModel, LearnsAnEncoderThatItsRanksShare) {
  Setting s;
  std::size_t with_tiles = 0;
  while (s.samples[with_tiles].encoder_sequences.empty()) ++with_tiles;
  const ShapeBucket slow = bucket_of(true, s.samples[with_tiles].encoder());
  const SlowSamples hardware(s.base, true, slow, 0.1);
  Correction correction;
  s.teach(correction, hardware, 60);
  const CorrectedCostModel corrected(s.base, correction);
  const SampleCosts truth = sample_costs(hardware, s.plan, s.model, s.samples);
  const SampleCosts after = sample_costs(corrected, s.plan, s.model, s.samples);
  // Encoder costs are 3 / 2 of the costs on one rank (dp 3 and 2): 0.45 s for a slow sample.
  const SampleCosts before = sample_costs(s.base, s.plan, s.model, s.samples);
  EXPECT_NEAR(truth.encoder_s[with_tiles] - before.encoder_s[with_tiles], 0.45, 1e-9);
  for (std::size_t i = 0; i < s.samples.size(); ++i) {
    EXPECT_NEAR(after.encoder_s[i], truth.encoder_s[i], 0.05) << i;
  }
}

TEST(CorrectedCostModel, PricesTheSamplesOfABatch) {
  // price() for hardware with a slow sample in a bin: 0.1 s more forward on both stages of its dp rank, 0.2 s
  // more backward, and nothing elsewhere.
  Setting s;
  const SlowSamples hardware(s.base, false, bucket_of(false, s.samples[7].llm()), 0.1);
  int slow = 0;
  for (const Sample& sample : s.samples) {
    slow += bucket_of(false, sample.llm()) == bucket_of(false, s.samples[7].llm()) ? 1 : 0;
  }
  const ProgramCosts usual = s.base.price(s.iteration.program);
  const ProgramCosts costs = price(hardware, s.iteration);
  double more = 0;
  for (std::size_t i = 0; i < costs.instruction.size(); ++i) {
    more += Seconds(costs.instruction[i] - usual.instruction[i]).count();
  }
  EXPECT_NEAR(more, slow * 2 * (0.1 + 0.2), 1e-6);
}

TEST(CorrectedCostModel, PartsAndWholesOfBackwardsCorrectEachOther) {
  const AnalyticCostModel base(fixtures::llava_llama3_8b(), fixtures::a100_cluster());
  Stage stage;
  stage.llm_layers = 16;
  const Work work{{}, {2, 3000, 5'000'000}};
  const CorrectionRow row{StageKind::llm, Op::backward, 1.2, 1, 1, {}};
  Correction whole(CorrectionOptions{.prior = 1});
  whole.learn(std::vector<CorrectionRow>(99, row));  // 1 + 0.2 x 99 / (99 + 1)
  const CorrectedCostModel of_whole(base, whole);
  EXPECT_NEAR(
      of_whole.compute(Op::backward_input, stage, work) / base.compute(Op::backward_input, stage, work),
      1.198, 1e-9);
  std::vector<CorrectionRow> parts(198, row);
  for (std::size_t r = 0; r < parts.size(); ++r) {
    parts[r].op = r % 2 == 0 ? Op::backward_input : Op::backward_weight;
  }
  Correction split(CorrectionOptions{.prior = 1});
  split.learn(parts);
  const CorrectedCostModel of_parts(base, split);
  EXPECT_NEAR(of_parts.compute(Op::backward, stage, work) / base.compute(Op::backward, stage, work), 1.198,
              1e-9);
  EXPECT_NEAR(*of_parts.convex_floor(Op::backward, stage, work) / base.compute(Op::backward, stage, work),
              1.198, 1e-9);
}

TEST(CorrectedCostModel, TimelinesOfAnotherPlanAreRejected) {
  Setting s;
  Timeline timeline = timeline_of(s.iteration.program, s.base.price(s.iteration.program));
  timeline.spans[0].microbatch = 99;
  Correction correction;
  try {
    correction.learn(timeline, s.base, s.plan, s.samples, s.iteration.assignment);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    EXPECT_EQ(std::string(error.what()),
              "correction: expected a timeline of the plan, found microbatch 99 on rank " +
                  std::to_string(timeline.spans[0].rank));
  }
  correction.learn(Timeline{}, s.base, s.plan, s.samples, s.iteration.assignment);  // nothing to learn
  EXPECT_TRUE(correction.fits().empty());
}

}  // namespace corrected_test
}  // namespace dflop
