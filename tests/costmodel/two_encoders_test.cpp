// A model with two encoders costs as much as its parts.
#include <gtest/gtest.h>

#include "core/program/lowering.hpp"
#include "core/support/random.hpp"
#include "costmodel/analytic/analytic.hpp"
#include "costmodel/analytic/flops.hpp"
#include "costmodel/profiled/profiled.hpp"
#include "tests/costmodel/fixtures.hpp"
#include "tests/rounds.hpp"
#include "tests/traces/profile_fixtures.hpp"
#include "traces/families/hugging_face.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace two_encoders_test {

constexpr Op kOps[] = {Op::forward, Op::backward, Op::backward_input, Op::backward_weight};

/// LLaVA with Llama 3 8B, and a smaller second encoder that merges pairs of rows.
ModelSpec hearing_model() {
  ModelSpec model = fixtures::llava_llama3_8b();
  model.second = SecondEncoder{{"ears", 8, 640, 2560, 10, 10, 64, false, false, 0}, {{640, 4096}, 2}};
  return model;
}

ModelSpec without_second(ModelSpec model) {
  model.second.reset();
  return model;
}

Stage stage_of(int encoder_layers, int llm_layers, bool connector, int tp) {
  Stage stage;
  stage.encoder_layers = encoder_layers;
  stage.llm_layers = llm_layers;
  stage.connector = connector;
  stage.embedding = llm_layers > 0;
  stage.tp = tp;
  stage.dp = 2;
  return stage;
}

/// Counts far above zero, or none.
Workload random_work(Random& random, bool second) {
  const auto count = [&] { return static_cast<std::int64_t>(1000 + random.below(100'000)); };
  Workload work;
  if (random.below(3) > 0) work = {8, count(), 100 * count()};
  if (second && random.below(3) > 0) work.second = {8, count(), 100 * count()};
  return work;
}

TEST(TwoEncoders, StageCostsAddUpOnTheStageWithTheConnectors) {
  const ModelSpec model = hearing_model();
  const AnalyticCostModel cost(model, fixtures::a100_cluster());
  const AnalyticCostModel first(without_second(model), fixtures::a100_cluster());
  const AnalyticCostModel second(model.of_second(), fixtures::a100_cluster());
  Random random(1);
  for (int i = 0; i < testing::rounds(200); ++i) {
    const Work work{random_work(random, true), random_work(random, false)};
    Stage stage = stage_of(static_cast<int>(random.below(27)) + 1, static_cast<int>(random.below(3)),
                           random.below(2) == 0, 1 << random.below(3));
    stage.recomputation = static_cast<Recomputation>(random.below(3));
    const Stage own = stage_of_second(stage, model);
    const bool hears = stage.connector && work.encoder.second.tokens > 0;
    Bytes kept = first.activation(stage, work);
    if (hears) kept += second.activation(own, work.of_second());
    EXPECT_EQ(cost.activation(stage, work), kept);
    for (const Op op : kOps) {
      Seconds sum = first.compute(op, stage, work);
      if (hears) sum += second.compute(op, own, work.of_second());
      EXPECT_NEAR(cost.compute(op, stage, work).count(), sum.count(), 1e-12 * sum.count());
      EXPECT_GE(cost.workspace(op, stage, work), first.workspace(op, stage, work));
      if (hears) {
        EXPECT_GE(cost.workspace(op, stage, work), second.workspace(op, own, work.of_second()));
      }
      if (hears && op == Op::backward_input) {  // the second encoder's rebuilt layers stay
        const Bytes rebuilt =
            second.split_activation(own, work.of_second()) - second.activation(own, work.of_second());
        EXPECT_GE(cost.workspace(op, stage, work), first.workspace(op, stage, work) + rebuilt);
      }
    }
  }
}

/// The floor is convex between any two works with the same empty modules. A work of only one encoder and one
/// of both have the same empty modules.
TEST(TwoEncoders, FloorIsConvexAlsoIfAnEncoderHasNoWork) {
  const ModelSpec model = hearing_model();
  const AnalyticCostModel cost(model, fixtures::a100_cluster());
  Random random(2);
  for (int i = 0; i < testing::rounds(300); ++i) {
    const Stage stage = stage_of(27, 0, true, 1);
    const Workload a = random_work(random, true);
    const Workload b = random_work(random, true);
    if (a.empty() || b.empty()) continue;
    Workload middle = a;
    middle += b;
    for (std::int64_t* count :
         {&middle.sequences, &middle.tokens, &middle.attention_pairs, &middle.second.sequences,
          &middle.second.tokens, &middle.second.attention_pairs})
      *count /= 2;
    for (const Op op : kOps) {
      const auto floor = [&](const Workload& work) {
        return cost.convex_floor(op, stage, {work, {}}).value().count();
      };
      EXPECT_LE(floor(a), cost.compute(op, stage, {a, {}}).count() * (1 + 1e-12));
      EXPECT_GE(floor(a), 0);
      EXPECT_LE(floor(middle), (floor(a) + floor(b)) / 2 * (1 + 1e-9));
    }
  }
}

/// The same for a released model, whose fronts and connectors have a price, on stages with tp and with LLM
/// layers.
TEST(TwoEncoders, FloorOfAReleasedModelIsConvex) {
  const std::string file = DFLOP_SOURCE_DIR "/tests/golden/released/qwen2.5-omni-7b/config.json";
  const ModelSpec model = parse_hugging_face(read_text_file(file), file);
  ASSERT_TRUE(model.second && model.architecture);
  const AnalyticCostModel cost(model, fixtures::a100_cluster());
  Random random(3);
  int parted = 0;
  for (int i = 0; i < testing::rounds(300); ++i) {
    Stage stage = stage_of(model.encoder.layers, random.below(2) == 0 ? 0 : 5, true, 1 << random.below(3));
    stage.front = true;
    stage.recomputation = static_cast<Recomputation>(random.below(3));
    const auto draw = [&] {
      Work work{random_work(random, true), {}};
      if (stage.llm_layers > 0) work.llm = {4, 1000 + static_cast<std::int64_t>(random.below(10'000)), 0};
      work.llm.attention_pairs = work.llm.tokens * work.llm.tokens / 4;
      return work;
    };
    const Work a = draw();
    const Work b = draw();
    if (a.encoder.empty() || b.encoder.empty()) continue;
    parted += (a.encoder.tokens == 0) != (b.encoder.tokens == 0) ? 1 : 0;
    const auto mean = [](std::int64_t x, std::int64_t y) { return (x + y) / 2; };
    Work middle{{mean(a.encoder.sequences, b.encoder.sequences), mean(a.encoder.tokens, b.encoder.tokens),
                 mean(a.encoder.attention_pairs, b.encoder.attention_pairs)},
                {mean(a.llm.sequences, b.llm.sequences), mean(a.llm.tokens, b.llm.tokens),
                 mean(a.llm.attention_pairs, b.llm.attention_pairs)}};
    const SecondWork& x = a.encoder.second;
    const SecondWork& y = b.encoder.second;
    middle.encoder.second = {mean(x.sequences, y.sequences), mean(x.tokens, y.tokens),
                             mean(x.attention_pairs, y.attention_pairs)};
    for (const Op op : kOps) {
      const auto floor = [&](const Work& work) { return cost.convex_floor(op, stage, work).value().count(); };
      EXPECT_LE(floor(a), cost.compute(op, stage, a).count() * (1 + 1e-12));
      EXPECT_LE(floor(middle), (floor(a) + floor(b)) / 2 * (1 + 1e-9));
    }
  }
  EXPECT_GT(parted, 10);
}

TEST(TwoEncoders, ParametersAndFlopAddUp) {
  const ModelSpec model = hearing_model();
  Stage stage = stage_of(27, 0, true, 2);
  // 8 layers of 2 * 640 * 640 * 2 + 2 * 640 * 2560 weights, and a connector of 640 * 4096, over tp 2.
  const std::int64_t second = (8 * (4 * 640 * 640 + 2 * 640 * 2560) + 640 * 4096) / 2;
  EXPECT_EQ(stage_parameters(stage, model), stage_parameters(stage, without_second(model)) + second);
  EXPECT_EQ(trained_parameters(stage, model), stage_parameters(stage, model));
  stage.trained.connector = false;
  EXPECT_EQ(trained_parameters(stage, model),
            trained_parameters(stage, without_second(model)) + second - 640 * 4096 / 2);
  stage.connector = false;
  EXPECT_EQ(stage_parameters(stage, model), stage_parameters(stage, without_second(model)));
  const Workload both{1, 729, 729 * 729, 0, {2, 200, 20'000}};
  const Workload llm{1, 500, 250'000};
  Workload only_first = both;
  only_first.second = {};
  EXPECT_DOUBLE_EQ(model_flop(model, both, llm).count,
                   model_flop(without_second(model), only_first, llm).count +
                       model_flop(model.of_second(), both.of_second(), {}).count);
  // Forward and backward of 200 tokens: 6 FLOP a weight, 12 * 640 * 20000 a layer for attention; 100 merged
  // tokens go through the connector.
  const double expected =
      8 * (6.0 * 200 * (4 * 640 * 640 + 2 * 640 * 2560) + 12.0 * 640 * 20'000) + 6.0 * 100 * 640 * 4096;
  EXPECT_DOUBLE_EQ(model_flop(model.of_second(), both.of_second(), {}).count, expected);
}

/// 100 tokens of pictures, and 50 of sounds with a mean length of 40.
const Work kHeard{{3, 100, 4000, 0, {2, 50, 2000}}, {2, 200, 30'000}};

/// A stage of the profile's whole model except the head.
Stage without_head(Recomputation recomputation) {
  Stage stage = stage_of(2, 3, true, 1);
  stage.recomputation = recomputation;
  return stage;
}

/// Sounds take, in microseconds: front 10 * 50, three layers of linear 20 * 50 and attention 30 * 50 * 40,
/// and connector 40 * 50. A stage without the connector has none of it.
TEST(TwoEncodersProfiled, TimesAddUp) {
  const ProfiledCostModel cost(fixtures::known_hearing_profile());
  const ProfiledCostModel first(fixtures::known_profile());
  const double sounds = 500e-6 + 3 * (1000e-6 + 60'000e-6) + 2000e-6;
  Stage stage = without_head(Recomputation::none);
  const auto difference = [&](Op op) {
    return (cost.compute(op, stage, kHeard) - first.compute(op, stage, kHeard)).count();
  };
  EXPECT_NEAR(difference(Op::forward), sounds, 1e-12);
  EXPECT_NEAR(difference(Op::backward_input), 2 * sounds, 1e-12);
  EXPECT_NEAR(difference(Op::backward_weight), 3 * sounds, 1e-12);
  stage.connector = false;
  EXPECT_EQ(difference(Op::forward), 0);
}

/// Host time in the first forward includes both fronts: pictures 1 us and sounds 10 us per token.
TEST(TwoEncodersProfiled, HostTimesAddUp) {
  ProfileTables profile = fixtures::known_hearing_profile();
  for (std::vector<TpProfile>* tables : {&profile.tp, &profile.second_tp}) {
    for (ProfilePoint& p : tables->front().of(ProfileUnit::patches)) p.host_s = p.forward_s;
  }
  Program program;
  program.stages = {without_head(Recomputation::none)};
  program.works = {kHeard};
  program.instructions = {{Op::forward, 0, 0, 0}, {Op::forward, 0, 1, 0}};
  program.groups = {{0, 1, 0, 0, 0, 2}};
  const std::vector<Nanoseconds> times = ProfiledCostModel(profile).price(program).instruction;
  EXPECT_EQ(times[0] - times[1], Nanoseconds(100'000 + 500'000));
}

/// Sounds keep 1000 bytes more per token than pictures in each layer, front and connector.
TEST(TwoEncodersProfiled, ActivationsAddUp) {
  const ProfiledCostModel cost(fixtures::known_hearing_profile());
  const ProfiledCostModel first(fixtures::known_profile());
  const Stage stage = without_head(Recomputation::selective);
  EXPECT_EQ(cost.activation(stage, kHeard) - first.activation(stage, kHeard),
            Bytes{50 * (3 * 1080 + 1006 + 1030)});
  EXPECT_EQ(cost.split_activation(stage, kHeard) - first.split_activation(stage, kHeard),
            Bytes{50 * (3 * 1100 + 1006 + 1030)});
}

/// Under full recomputation, per token and in the order of the backward: an LLM layer keeps 20 and needs 100
/// forward and 250 backward; the embedding keeps 4; the sounds keep 1030 + 3 * 1010 + 1006; the pictures'
/// connector keeps 30; a layer of pictures needs 60 forward and 140 backward. While a part runs, the parts
/// before it in this order hold nothing of what they keep.
TEST(TwoEncodersProfiled, WorkspaceCountsWhatTheOtherEncoderHolds) {
  const ProfiledCostModel cost(fixtures::known_hearing_profile());
  const Stage stage = without_head(Recomputation::full);
  const auto bytes = [&](Op op, const Work& work) { return cost.workspace(op, stage, work).count; };
  // Many pictures, few sounds: a layer of pictures, without what LLM, sounds and connector keep.
  const Work pictures{{1, 10'000, 10'000, 0, {1, 10, 100}}, {2, 200, 30'000}};
  const std::int64_t others = 200 * (3 * 20 + 4) + 10 * (1030 + 3 * 1010 + 1006) + 10'000 * 30;
  EXPECT_EQ(bytes(Op::forward, pictures), 10'000 * 60 - others);
  EXPECT_EQ(bytes(Op::backward, pictures), 10'000 * 140 - others);
  // The sounds' connector needs 1008 forward, without what the LLM and the embedding keep.
  EXPECT_EQ(bytes(Op::forward, kHeard), 50 * 1008 - 200 * (3 * 20 + 4));
  // Between the parts of a backward, each LLM layer keeps 180 more per token than before, each layer of
  // sounds
  // 90. The last layer of sounds to run needs 1140 on top of two others. With few sounds, the last layer of
  // pictures needs 140 on top of all layers of sounds and one of pictures, which keeps 90 more.
  EXPECT_EQ(bytes(Op::backward_input, kHeard), 200 * 3 * 180 + 50 * (1140 + 2 * 90));
  Work few = kHeard;
  few.encoder.second = {1, 10, 100};
  EXPECT_EQ(bytes(Op::backward_input, few), 200 * 3 * 180 + 10 * 3 * 90 + 100 * (140 + 90));
  EXPECT_EQ(bytes(Op::backward_weight, kHeard), 0);
}

/// On one of two quanta, a neighbor lengthens all of the pictures' units by 1.2 and all of the sounds'
/// by 1.8. Pictures take 100 + 2 * (200 + 12000) + 400 us, sounds 185500 us.
TEST(TwoEncodersProfiled, BandwidthIsTheMeanOverBothEncoders) {
  ProfileTables profile = fixtures::known_hearing_profile();
  profile.quanta = 2;
  const auto add_part = [](std::vector<TpProfile>& tables, double factor) {
    tables.front().quanta = 2;
    TpProfile part = tables.front();
    part.quanta = 1;
    part.part.emplace();
    part.part->beside.fill({factor, factor, factor});
    tables.insert(tables.begin(), part);
  };
  add_part(profile.tp, 1.2);
  add_part(profile.second_tp, 1.8);
  Stage stage = stage_of(2, 0, true, 1);
  stage.recomputation = Recomputation::none;
  stage.share = 0.5;
  const double pictures = 100 + 2 * (200 + 12'000) + 400;
  const double sounds = 500 + 3 * (1000 + 60'000) + 2000;
  const ProfiledCostModel cost(profile);
  for (const Op op : kOps) {
    EXPECT_NEAR(cost.bandwidth(op, stage, {kHeard.encoder, {}}),
                (1.2 * pictures + 1.8 * sounds) / (pictures + sounds) / 2, 1e-12);
  }
  EXPECT_NEAR(cost.bandwidth(Op::forward, stage, {{0, 0, 0, 0, kHeard.encoder.second}, {}}), 0.9, 1e-12);
}

}  // namespace two_encoders_test
}  // namespace dflop
