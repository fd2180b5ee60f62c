// Costs from a profile: known tables lead to known times.
#include "costmodel/profiled/profiled.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/program/lowering.hpp"
#include "core/support/random.hpp"
#include "tests/traces/profile_fixtures.hpp"

namespace dflop {
namespace profiled_test {

using Below = ProfileCurve::Below;
using fixtures::known_profile;

TEST(ProfileCurve, MeetsPointsThatRise) {
  const std::vector<double> x = {16, 64, 100, 256};
  const std::vector<double> y = {0.1, 0.3, 0.7, 0.7};
  const ProfileCurve curve(x, y, Below::proportional);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(curve.at(x[i]), y[i]);
  // Halfway from 64 to 100; below the first point, the line to the origin; beyond the last, its flat piece.
  EXPECT_DOUBLE_EQ(curve.at(82), 0.5);
  EXPECT_DOUBLE_EQ(curve.at(4), 0.025);
  EXPECT_EQ(curve.at(0), 0);
  EXPECT_DOUBLE_EQ(curve.at(1000), 0.7);
  EXPECT_EQ(ProfileCurve(x, y, Below::constant).at(4), 0.1);
}

TEST(ProfileCurve, ExtrapolatesByTheLastSlope) {
  // 0.2 per 10 after 20: 0.5 + 3 * 0.2 at 60.
  EXPECT_DOUBLE_EQ(ProfileCurve({10, 20, 30}, {0.1, 0.3, 0.5}, Below::proportional).at(60), 1.1);
  EXPECT_DOUBLE_EQ(ProfileCurve({10}, {0.1}, Below::constant).at(30), 0.3);
}

TEST(ProfileCurve, ExtrapolatesByTheLastRateOnRequest) {
  // 0.5 at 30 means 1 at 60.
  const ProfileCurve curve({10, 20, 30}, {0.1, 0.3, 0.5}, Below::proportional, ProfileCurve::Beyond::rate);
  EXPECT_DOUBLE_EQ(curve.at(60), 1);
  EXPECT_DOUBLE_EQ(curve.at(25), 0.4);
}

TEST(ProfileCurve, JoinsPointsThatFall) {
  // 20 and 30 become (25, 4); with 40, whose 3 is below that, all three become (30, 11 / 3).
  const ProfileCurve two({10, 20, 30, 40}, {1, 5, 3, 6}, Below::proportional);
  EXPECT_DOUBLE_EQ(two.at(25), 4);
  EXPECT_DOUBLE_EQ(two.at(40), 6);
  EXPECT_DOUBLE_EQ(ProfileCurve({10, 20, 30, 40}, {1, 5, 3, 3}, Below::proportional).at(30), 11.0 / 3);
}

TEST(ProfileCurve, NeverFallsAndIsNeverNegative) {
  Random random(5);
  for (int round = 0; round < 500; ++round) {
    std::vector<double> x;
    std::vector<double> y;
    const std::uint64_t count = 1 + random.below(8);
    for (std::uint64_t i = 0; i < count; ++i) {
      x.push_back((x.empty() ? 0 : x.back()) + 0.1 + random.uniform());
      y.push_back(random.below(4) == 0 ? 0 : random.uniform());
    }
    const ProfileCurve curve(x, y, random.below(2) == 0 ? Below::proportional : Below::constant);
    double before = 0;
    for (int step = 0; step * 0.03 < 2 * x.back(); ++step) {
      const double at = step * 0.03;
      EXPECT_GE(curve.at(at), before - 1e-12) << "round " << round << " at " << at;
      before = curve.at(at);
    }
  }
}

Stage whole_stage(Recomputation recomputation) {
  Stage stage;
  stage.encoder_layers = 2;
  stage.llm_layers = 3;
  stage.connector = stage.embedding = stage.head = true;
  stage.recomputation = recomputation;
  return stage;
}

// 100 encoder tokens of mean length 40, 200 LLM tokens of mean length 150.
const Work kWork{{3, 100, 4000}, {2, 200, 30000}};

// Forward in microseconds. Encoder layers: linear 2 * 2 * 100 = 400, attention 2 * 3 * 100 * 40 = 24000. LLM
// layers: linear 3 * 6 * 200 = 3600, attention 3 * 7 * 200 * 150 = 630000. Ends: patches 1 * 100, connector 4
// * 100, embedding 5 * 200, head 8 * 200, in total 3100.
constexpr double kLayers = 400e-6 + 24000e-6 + 3600e-6 + 630000e-6;
constexpr double kAttention = 24000e-6 + 630000e-6;
constexpr double kEnds = 3100e-6;

TEST(ProfiledCostModel, AddsUpKnownTimes) {
  const ProfiledCostModel cost(known_profile());
  const auto time = [&](Op op, Recomputation recomputation) {
    return cost.compute(op, whole_stage(recomputation), kWork).count();
  };
  EXPECT_NEAR(time(Op::forward, Recomputation::none), kLayers + kEnds, 1e-12);
  EXPECT_NEAR(time(Op::forward, Recomputation::full), kLayers + kEnds, 1e-12);
  EXPECT_NEAR(time(Op::backward_input, Recomputation::none), 2 * (kLayers + kEnds), 1e-12);
  EXPECT_NEAR(time(Op::backward_input, Recomputation::selective), 2 * (kLayers + kEnds) + kAttention, 1e-12);
  EXPECT_NEAR(time(Op::backward_input, Recomputation::full), 2 * (kLayers + kEnds) + kLayers, 1e-12);
  EXPECT_NEAR(time(Op::backward_weight, Recomputation::full), 3 * (kLayers + kEnds), 1e-12);
  EXPECT_NEAR(time(Op::backward, Recomputation::full), 5 * (kLayers + kEnds) + kLayers, 1e-12);
}

/// Here recomputation of linear parts takes half of their forward. Attention has no such measurement and
/// takes its whole forward. Linear layers take 400 + 3600 us forward.
TEST(ProfiledCostModel, TakesRecomputationAsMeasured) {
  ProfileTables profile = known_profile();
  for (const ProfileUnit unit : {ProfileUnit::encoder_linear, ProfileUnit::llm_linear}) {
    for (ProfilePoint& p : profile.tp[0].of(unit)) p.recompute_s = p.forward_s / 2;
  }
  const ProfiledCostModel cost(profile);
  const auto time = [&](Op op, Recomputation recomputation) {
    return cost.compute(op, whole_stage(recomputation), kWork).count();
  };
  const double input = 2 * (kLayers + kEnds);
  EXPECT_NEAR(time(Op::backward_input, Recomputation::full), input + kAttention + 2000e-6, 1e-12);
  EXPECT_NEAR(time(Op::backward_input, Recomputation::selective), input + kAttention, 1e-12);
  EXPECT_NEAR(time(Op::backward_input, Recomputation::none), input, 1e-12);
  EXPECT_NEAR(time(Op::forward, Recomputation::full), kLayers + kEnds, 1e-12);
}

TEST(ProfiledCostModel, ChargesOnlyTheUnitsOfAStage) {
  const ProfiledCostModel cost(known_profile());
  Stage half;
  half.encoder_layers = 1;
  half.recomputation = Recomputation::none;
  // Half of the patches and one layer; the LLM's work, except for its layers, belongs to another stage.
  EXPECT_NEAR(cost.compute(Op::forward, half, {kWork.encoder, {}}).count(), 50e-6 + 200e-6 + 12000e-6, 1e-12);
  EXPECT_EQ(cost.compute(Op::forward, whole_stage(Recomputation::none), {}).count(), 0);
  EXPECT_EQ(cost.convex_floor(Op::forward, half, kWork), std::nullopt);
  EXPECT_THROW(cost.compute(Op::send, half, kWork), Error);
  half.tp = 2;
  EXPECT_THROW(cost.compute(Op::forward, half, kWork), Error);
}

/// Returns a profile of devices with four quanta, measured on one quantum and on all of them. On one
/// everything takes four times as long. With a neighbor, the passes of layers take 1.2, 1.4 and 1.6 times as
/// long, and everything else as long as alone.
ProfileTables shared_profile() {
  ProfileTables profile = known_profile();
  profile.quanta = 4;
  profile.tp.front().quanta = 4;
  TpProfile one = profile.tp.front();
  one.quanta = 1;
  for (UnitPoints& points : one.units) {
    for (ProfilePoint& p : points) {
      p.forward_s *= 4;
      p.backward_input_s *= 4;
      p.backward_weight_s *= 4;
    }
  }
  PartProfile part;
  part.optimizer = {4e-3, 4e-6};
  part.optimizer_beside = 1.5;
  for (const ProfileUnit unit : {ProfileUnit::encoder_linear, ProfileUnit::encoder_attention,
                                 ProfileUnit::llm_linear, ProfileUnit::llm_attention}) {
    part.beside[static_cast<std::size_t>(unit)] = {1.2, 1.4, 1.6};
  }
  one.part = part;
  profile.tp.insert(profile.tp.begin(), one);
  return profile;
}

Stage part_of_encoder(double share) {
  Stage stage;
  stage.encoder_layers = 1;
  stage.recomputation = Recomputation::none;
  stage.share = share;
  return stage;
}

// Forward of one encoder layer of kWork on all quanta, in microseconds: half of the patches 50, linear 200,
// attention 12000.
constexpr double kOneLayer = 12250e-6;

/// On k of four quanta a time is a + b / k. With 4 T on one quantum and T on all, b / 1 + a = 4 T and b / 4 +
/// a = T: a = 0, so two quanta take 2 T and three take 4/3 T.
TEST(ProfiledCostModel, PricesStagesByTheirQuanta) {
  const ProfiledCostModel cost(shared_profile());
  const auto forward = [&](double share) {
    return cost.compute(Op::forward, part_of_encoder(share), kWork).count();
  };
  EXPECT_NEAR(forward(1), kOneLayer, 1e-12);
  EXPECT_NEAR(forward(0.25), 4 * kOneLayer, 1e-12);
  EXPECT_NEAR(forward(0.01), 4 * kOneLayer, 1e-12);  // at least one quantum
  EXPECT_NEAR(forward(0.5), 2 * kOneLayer, 1e-12);
  EXPECT_NEAR(forward(0.75), 4.0 / 3 * kOneLayer, 1e-12);
  EXPECT_NEAR(forward(0.99), 4.0 / 3 * kOneLayer, 1e-12);  // one quantum goes to the LLM
}

/// The LLM gets the quanta that the encoder leaves, even if the share is halfway between two quanta: with
/// four quanta and 0.375 the encoder gets two, since halves round up. The LLM asks for 0.625 and also gets
/// two.
TEST(ProfiledCostModel, GivesTheLlmTheRest) {
  const ProfiledCostModel cost(shared_profile());
  Stage llm;
  llm.llm_layers = 1;
  llm.recomputation = Recomputation::none;
  const double whole = cost.compute(Op::forward, llm, kWork).count();
  llm.share = 0.625;
  EXPECT_NEAR(cost.compute(Op::forward, llm, kWork).count(), 2 * whole, 1e-12);
  llm.share = 0.75;
  EXPECT_NEAR(cost.compute(Op::forward, llm, kWork).count(), 4.0 / 3 * whole, 1e-12);
  for (int quanta = 2; quanta <= 64; ++quanta) {
    for (int i = 1; i < 200; ++i) {
      Stage encoder = part_of_encoder(i / 200.0);
      llm.share = 1 - encoder.share;
      EXPECT_EQ(quanta_of(encoder, quanta) + quanta_of(llm, quanta), quanta) << quanta << " " << i;
    }
  }
}

/// With a neighbor, layers take 1.2 times as long and patches equally long: 50 + 12200 us become 50 + 14640.
/// The result is half of this ratio.
TEST(ProfiledCostModel, RequestsHalfOfTheSlowdown) {
  const ProfiledCostModel cost(shared_profile());
  const Stage quarter = part_of_encoder(0.25);
  EXPECT_NEAR(cost.bandwidth(Op::forward, quarter, kWork), 14690.0 / 12250 / 2, 1e-12);
  EXPECT_NEAR(cost.bandwidth(Op::backward_input, quarter, kWork), (50 + 1.4 * 12200) / 12250 / 2, 1e-12);
  EXPECT_NEAR(cost.bandwidth(Op::backward_weight, quarter, kWork), (50 + 1.6 * 12200) / 12250 / 2, 1e-12);
  // Both parts of a whole backward: 2 and 3 times the forward's 50 + 12200.
  EXPECT_NEAR(cost.bandwidth(Op::backward, quarter, kWork),
              (5 * 50 + (2 * 1.4 + 3 * 1.6) * 12200) / (5 * 12250) / 2, 1e-12);
  EXPECT_EQ(cost.bandwidth(Op::forward, part_of_encoder(1), kWork), 0.5);
  EXPECT_EQ(cost.optimizer_bandwidth(quarter), 0.75);
  EXPECT_TRUE(cost.knows_shares());
  EXPECT_FALSE(ProfiledCostModel(known_profile()).knows_shares());
  EXPECT_EQ(cost.share_quanta(), shared_profile().quanta);
  EXPECT_EQ(ProfiledCostModel(known_profile()).share_quanta(), 0);
  EXPECT_EQ(cost.optimizer_bandwidth(part_of_encoder(1)), 0.5);
}

/// Work that is as fast with a neighbor, or faster by noise, asks for half; nothing asks for more than all.
TEST(ProfiledCostModel, RequestsBetweenHalfAndAllOfTheBandwidth) {
  ProfileTables profile = shared_profile();
  profile.tp.front().part->optimizer_beside = 0.9;
  for (PassFactors& factors : profile.tp.front().part->beside) factors = {0.5, 2.5, 1};
  const ProfiledCostModel cost(profile);
  EXPECT_EQ(cost.optimizer_bandwidth(part_of_encoder(0.25)), 0.5);
  EXPECT_EQ(cost.bandwidth(Op::forward, part_of_encoder(0.25), kWork), 0.5);
  EXPECT_EQ(cost.bandwidth(Op::backward_input, part_of_encoder(0.25), kWork), 1);
}

/// Uses the parameters of one layer. On two quanta the line through 4 and 1 is a + b / 2: twice.
TEST(ProfiledCostModel, PricesOptimizersByTheirQuanta) {
  const ProfiledCostModel cost(shared_profile());
  const double whole = cost.optimizer_step(part_of_encoder(1)).count();
  EXPECT_NEAR(cost.optimizer_step(part_of_encoder(0.25)).count(), 4 * whole, 1e-12);
  EXPECT_NEAR(cost.optimizer_step(part_of_encoder(0.5)).count(), 2 * whole, 1e-12);
}

TEST(ProfiledCostModel, RejectsPartsBelowMeasuredOnes) {
  ProfileTables profile = shared_profile();
  profile.tp.front().quanta = 2;
  const ProfiledCostModel cost(profile);
  EXPECT_NO_THROW(cost.compute(Op::forward, part_of_encoder(0.5), kWork));
  EXPECT_TRUE(has_tables(profile, part_of_encoder(0.75)));
  EXPECT_FALSE(has_tables(profile, part_of_encoder(0.25)));
  const auto message = [&](const ProfileTables& tables) -> std::string {
    try {
      ProfiledCostModel(tables).compute(Op::forward, part_of_encoder(0.25), kWork);
    } catch (const Error& error) {
      return error.message();
    }
    return "";
  };
  EXPECT_NE(message(profile).find("no tables of tp 1 on 1/4 of a device; it was measured at tp 1 on 2/4 of a "
                                  "device, tp 1"),
            std::string::npos)
      << message(profile);
  EXPECT_NE(message(known_profile()).find("no tables of tp 1 on a part of a device"), std::string::npos);
  EXPECT_FALSE(has_tables(known_profile(), part_of_encoder(0.25)));
}

/// At tp 2, passes take half as long; with sequence parallelism a third.
TEST(ProfiledCostModel, KeepsModesOfTpApart) {
  ProfileTables profile = known_profile();
  for (const auto& [mode, part] : {std::pair{TpMode{2, false}, 2}, std::pair{TpMode{2, true}, 3}}) {
    TpProfile tables = known_profile().tp.front();
    tables.mode = mode;
    tables.activation.head /= part;
    for (UnitPoints& points : tables.units) {
      for (ProfilePoint& p : points) p.forward_s /= part;
    }
    profile.tp.push_back(tables);
  }
  const ProfiledCostModel cost(profile);
  Stage stage = whole_stage(Recomputation::none);
  for (const auto& [tp, sequence_parallel, part] : {std::tuple{1, false, 1.0}, std::tuple{1, true, 1.0},
                                                    std::tuple{2, false, 2.0}, std::tuple{2, true, 3.0}}) {
    stage.tp = tp;
    stage.sequence_parallel = sequence_parallel;
    EXPECT_NEAR(cost.compute(Op::forward, stage, kWork).count(), (kLayers + kEnds) / part, 1e-12);
    Stage head;
    head.head = true;
    head.tp = tp;
    head.sequence_parallel = sequence_parallel;
    EXPECT_EQ(cost.activation(head, {{}, {1, 300, 300}}).count, std::llround(300 * 50 / part));
  }
}

/// A message of 1000 values in f32: 2 ms + 4 ms; a shard of two: 2 ms + 2 ms.
TEST(ProfiledCostModel, SendsShardsWithinAModule) {
  const ProfiledCostModel cost(known_profile());
  Stage encoder;
  encoder.encoder_layers = 1;
  encoder.tp = 2;
  Stage llm;
  llm.llm_layers = 1;
  llm.tp = 2;
  Program program;
  Stage both = encoder;
  both.llm_layers = 1;
  program.stages = {encoder, encoder, llm, llm, both};
  for (std::int32_t s = 0; s < 5; ++s) program.groups.push_back({2 * s, 2, s, 0, 0, 0});
  const auto time = [&](std::int32_t from, std::int32_t to) {
    return cost.message({from, to, 0, Bytes{2000}, Bytes{2000}}, program).count();
  };
  EXPECT_DOUBLE_EQ(time(0, 1), 4e-3);
  EXPECT_DOUBLE_EQ(time(1, 2), 6e-3);
  EXPECT_DOUBLE_EQ(time(2, 1), 6e-3);
  EXPECT_DOUBLE_EQ(time(3, 2), 4e-3);
  EXPECT_DOUBLE_EQ(time(0, 4), 4e-3);  // in the encoder
  EXPECT_DOUBLE_EQ(time(4, 3), 4e-3);  // in the LLM
  for (Stage& stage : program.stages) stage.sequence_parallel = false;
  EXPECT_DOUBLE_EQ(time(0, 1), 6e-3);
}

TEST(ProfiledCostModel, ReportsItsExtrapolation) {
  const ProfiledCostModel cost(known_profile());  // up to 256 tokens and lengths
  const Stage stage = whole_stage(Recomputation::none);
  const auto times = [&](const Work& work) { return cost.reach(stage, work).times(); };
  EXPECT_EQ(times({{1, 256, 256 * 256}, {1, 256, 256 * 256}}), 1);
  EXPECT_EQ(times({{1, 512, 512}, {}}), 2);
  const ProfileReach length = cost.reach(stage, {{}, {1, 10, 10 * 384}});
  EXPECT_EQ(length.unit, ProfileUnit::llm_attention);
  EXPECT_EQ(length.asked, 384);
  EXPECT_EQ(length.last, 256);
  EXPECT_EQ(times({}), 0);
}

/// Sounds of 1024 tokens need four times the measured 256; pictures of 512 tokens need twice as many.
TEST(ProfiledCostModel, NamesTheEncoderThatItExtrapolates) {
  const ProfiledCostModel cost(fixtures::known_hearing_profile());
  const Stage stage = whole_stage(Recomputation::none);
  const ProfileReach sounds = cost.reach(stage, {{1, 512, 512, 0, {4, 1024, 1024}}, {}});
  EXPECT_EQ(sounds.times(), 4);
  EXPECT_EQ(sounds.name(), "second_patches");  // the first of its units that need 1024
  const ProfileReach pictures = cost.reach(stage, {{1, 512, 512, 0, {4, 256, 256}}, {}});
  EXPECT_EQ(pictures.times(), 2);
  EXPECT_EQ(pictures.name(), "patches");
}

/// 150 of 200 LLM tokens are untrained: the head takes 50 * 8 us in place of 200 * 8 us if logits are
/// computed only for trained tokens.
TEST(ProfiledCostModel, CountsTrainedTokensOfTheHead) {
  Work work = kWork;
  work.llm.untrained_tokens = 150;
  const Stage stage = whole_stage(Recomputation::none);
  ProfileTables profile = known_profile();
  EXPECT_NEAR(ProfiledCostModel(profile).compute(Op::forward, stage, work).count(), kLayers + kEnds, 1e-12);
  profile.model.llm.logits_at_once = 1 << 20;
  EXPECT_NEAR(ProfiledCostModel(profile).compute(Op::forward, stage, work).count(),
              kLayers + kEnds - 150 * 8e-6, 1e-12);
}

/// One of two layers has windows of 16 tokens. The mean length over both is 40, so the other has length
/// 2 * 40 - 16 = 64. Attention takes 3 us * 100 * (16 + 64), the same as 2 * 40, since here it is linear in
/// the length. If 256 tokens of length 16 have a start of 1 ms, only the layer with windows has it.
TEST(ProfiledCostModel, KeepsLayersWithWindowsApart) {
  ProfileTables profile = known_profile();
  profile.windows = AttentionWindows{1, 16};
  const Stage stage = whole_stage(Recomputation::none);
  const auto forward = [&] { return ProfiledCostModel(profile).compute(Op::forward, stage, kWork).count(); };
  EXPECT_NEAR(forward(), kLayers + kEnds, 1e-12);
  profile.tp.front().of(ProfileUnit::encoder_attention).front().forward_s *= 3;
  EXPECT_NEAR(forward(), kLayers + kEnds + 2 * 3e-6 * 100 * 16, 1e-12);
}

/// Patches take 1 us per token, all of it on the host. With two microbatches of 100 tokens on a rank, the
/// first forward has 100 us for all patches, the second none.
TEST(ProfiledCostModel, ShowsTheHostInTheFirstForward) {
  ProfileTables profile = known_profile();
  for (ProfilePoint& p : profile.tp.front().of(ProfileUnit::patches)) p.host_s = p.forward_s;
  const ProfiledCostModel cost(profile);
  Program program;
  program.stages = {whole_stage(Recomputation::none)};
  program.works = {kWork};
  program.instructions = {{Op::forward, 0, 0, 0}, {Op::forward, 0, 1, 0}, {Op::backward, 0, 0, 0}};
  program.groups = {{0, 1, 0, 0, 0, 3}};
  const std::vector<Nanoseconds> times = cost.price(program).instruction;
  EXPECT_EQ(times[0] - times[1], Nanoseconds(100'000));
  EXPECT_EQ(times[1], to_nanoseconds(Seconds(kLayers + kEnds - 100e-6)));
}

/// Three LLM layers of 480 parameters: 5 us plus 2 ns each; the sum of 8 bytes over four ranks adds 3 ms and
/// 6 us per byte. Sums of gradients have none of it.
TEST(ProfiledCostModel, AddsSquaresToTheNorm) {
  ProfileTables profile = known_profile();
  profile.norm = {5e-6, 2e-9};
  const ProfiledCostModel cost(profile);
  Program program;
  Stage stage;
  stage.llm_layers = 3;
  stage.dp = 4;
  stage.zero1 = true;  // one dp rank still squares all parameters
  program.stages = {stage};
  for (std::int32_t g = 0; g < 4; ++g) program.groups.push_back({g, 1, 0, g, 0, 0});
  Collective norm;
  norm.bytes = kNormBytes;
  norm.sum = CollectiveSum::norm;
  norm.groups = {0};
  EXPECT_NEAR(cost.all_reduce(norm, program).count(), 5e-6 + 1440 * 2e-9, 1e-12);
  norm.groups = {0, 1, 2, 3};
  EXPECT_NEAR(cost.all_reduce(norm, program).count(), 5e-6 + 1440 * 2e-9 + 3e-3 + 8 * 6e-6, 1e-12);
  norm.sum = CollectiveSum::gradients;
  EXPECT_NEAR(cost.all_reduce(norm, program).count(), 3e-3 + 8 * 6e-6, 1e-12);
}

/// At a fixed mean length, more tokens never take less time.
TEST(ProfiledCostModel, RisesWithTheTokens) {
  Random random(9);
  ProfileTables profile = known_profile();
  for (UnitPoints& points : profile.tp[0].units) {
    for (ProfilePoint& p : points) p.forward_s *= 0.2 + random.uniform();
  }
  const ProfiledCostModel cost(profile);
  const Stage stage = whole_stage(Recomputation::full);
  double before = 0;
  for (std::int64_t tokens = 1; tokens < 600; tokens += 7) {
    const Workload work{1, tokens, 90 * tokens};
    const double time = cost.compute(Op::forward, stage, {work, work}).count();
    EXPECT_GT(time, before);
    before = time;
  }
}

TEST(ProfiledCostModel, PricesCommunicationByItsLines) {
  const ProfiledCostModel cost(known_profile());
  Program program;
  program.stages.resize(2);
  program.groups = {{0, 1, 0, 0, 0, 0}, {1, 1, 1, 0, 0, 0}};
  Message message;
  message.destination = 1;
  message.bytes = Bytes{1000};  // of 2-byte values: 2000 bytes as f32
  EXPECT_DOUBLE_EQ(cost.message(message, program).count(), 2e-3 + 2000e-6);
  Collective collective;
  collective.bytes = Bytes{1000};
  const auto time = [&](int ranks) {
    collective.groups.assign(static_cast<std::size_t>(ranks), 0);
    return cost.all_reduce(collective, program).count();
  };
  // Two ranks take 3 ms, four 9 ms; three are halfway; seven take 6 / 3 of four.
  EXPECT_EQ(time(1), 0);
  EXPECT_DOUBLE_EQ(time(2), 3e-3);
  EXPECT_DOUBLE_EQ(time(3), 6e-3);
  EXPECT_DOUBLE_EQ(time(4), 9e-3);
  EXPECT_DOUBLE_EQ(time(7), 18e-3);
}

// Two copies gather what both send: 2 * 8 rows of the LLM's width in f32, which the program counts as sums of
// 4 bytes. That is half of an all-reduce over two ranks.
TEST(ProfiledCostModel, GathersTheOutputsOfCopies) {
  const ProfiledCostModel cost(known_profile());
  const ModelSpec& model = cost.profile().model;
  Stage stage = whole_stage(Recomputation::none);
  stage.llm_layers = 0;
  stage.embedding = stage.head = false;
  const Work work{{1, 8 * std::max(1, model.connector.merge), 64}, {}};
  Collective collective;
  collective.groups = {0, 1};
  collective.bytes = Bytes{2 * 8 * model.sent_width() * 4};
  Program program;
  program.stages.resize(1);
  program.groups = {{0, 1, 0, 0, 0, 0}, {1, 1, 0, 1, 0, 0}};
  const Seconds gather = cost.all_reduce(collective, program) / 2;
  EXPECT_GT(gather.count(), 0);
  Stage copies = stage;
  copies.copies = 2;
  EXPECT_DOUBLE_EQ((cost.compute(Op::forward, copies, work) - cost.compute(Op::forward, stage, work)).count(),
                   gather.count());
  for (const Op op : {Op::backward, Op::backward_input, Op::backward_weight})
    EXPECT_EQ(cost.compute(op, copies, work), cost.compute(op, stage, work));
  EXPECT_EQ(cost.compute(Op::forward, copies, {}), Seconds(0));
}

/// An ffn of 12 is padded to 16 in memory: 4 more rows or columns of 8 in each of three matrices, 96 per
/// layer. The encoder's ffn of 16 is unchanged.
TEST(ProfiledCostModel, CountsTheZerosOfPaddedRows) {
  ProfileTables profile = known_profile();
  profile.row_alignment = 8;
  Stage stage = whole_stage(Recomputation::none);
  const std::int64_t parameters = stage_parameters(stage, profile.model) + 3 * 96;
  EXPECT_EQ(ProfiledCostModel(profile).model_state(stage).parameters, Bytes{4 * parameters});
}

TEST(ProfiledCostModel, CountsStatesAndActivations) {
  const ProfiledCostModel cost(known_profile());
  Stage stage;  // three LLM layers of 480 parameters
  stage.llm_layers = 3;
  stage.dp = 4;
  ASSERT_EQ(stage_parameters(stage, cost.profile().model), 1440);
  EXPECT_DOUBLE_EQ(cost.optimizer_step(stage).count(), 1e-3 + 360e-6);
  // f32: weights and gradients of 4 bytes, two moments of 4 bytes on 360 parameters.
  EXPECT_EQ(cost.model_state(stage), (ModelState{Bytes{5760}, Bytes{5760}, Bytes{2880}}));
  // 100 encoder tokens * (2 * 80 + 6 + 30), 200 LLM tokens * (3 * 160 + 4 + 50).
  EXPECT_EQ(cost.activation(whole_stage(Recomputation::selective), kWork).count, 19600 + 106800);
  // Between the parts of a backward, as without recomputation: 100 * (2 * 100 + 36), 200 * (3 * 200 + 54).
  for (const Recomputation mode : {Recomputation::none, Recomputation::selective, Recomputation::full}) {
    EXPECT_EQ(cost.split_activation(whole_stage(mode), kWork).count, 23600 + 130800);
  }
}

/// For 100 encoder tokens and 200 LLM tokens, the head needs 200 * 10 forward and 200 * 300 backward. An LLM
/// layer needs 200 * 50 and 200 * 110, minus the 200 * 50 that the head has not kept yet or has already
/// freed. On an encoder stage a layer needs 100 * 60 backward, minus the connector's 100 * 30, which is not
/// freed if the gradients of weights are computed later.
TEST(ProfiledCostModel, CountsBuffers) {
  const ProfiledCostModel cost(known_profile());
  Stage stage = whole_stage(Recomputation::selective);
  const auto bytes = [&](Op op) { return cost.workspace(op, stage, kWork).count; };
  EXPECT_EQ(bytes(Op::forward), 2'000);
  EXPECT_EQ(bytes(Op::backward), 60'000);
  EXPECT_EQ(bytes(Op::backward_weight), 0);
  stage.head = false;
  EXPECT_EQ(bytes(Op::forward), 10'000);
  EXPECT_EQ(bytes(Op::backward), 22'000);
  stage.llm_layers = 0;
  stage.embedding = false;
  EXPECT_EQ(bytes(Op::backward), 3'000);
  // Both of its layers hold 20 more per token while the second layer runs.
  EXPECT_EQ(bytes(Op::backward_input), 6'000 + 2'000);
}

/// Only 5 of 200 rows have their 10 logits of 4 bytes at once: 200 * 100 bytes minus 195 * 40.
TEST(ProfiledCostModel, CountsLogitsOfAChunk) {
  ProfileTables profile = known_profile();
  profile.model.llm.logits_at_once = 50;
  profile.tp.front().forward_buffers.head = 100;
  Stage stage;
  stage.head = true;
  EXPECT_EQ(ProfiledCostModel(profile).workspace(Op::forward, stage, kWork).count, 20'000 - 7'800);
  EXPECT_EQ(ProfiledCostModel(profile).workspace(Op::backward, stage, kWork).count, 60'000);
}

/// After its recomputation each LLM layer keeps 200 * 180 more than before, and each encoder layer 100 * 90.
/// The last LLM layer to run needs 200 * 250 on top of what the two before it keep. Then the last encoder
/// layer needs 100 * 140 on top of three LLM layers and one encoder layer.
TEST(ProfiledCostModel, CountsMemoryOfARunningSplitBackward) {
  const ProfiledCostModel cost(known_profile());
  Stage stage = whole_stage(Recomputation::full);
  stage.head = false;
  EXPECT_EQ(cost.workspace(Op::backward_input, stage, kWork).count, 14'000 + 3 * 36'000 + 9'000);
  stage.encoder_layers = 0;
  stage.connector = false;
  EXPECT_EQ(cost.workspace(Op::backward_input, stage, kWork).count, 50'000 + 2 * 36'000);
}

/// A profile of only the LLM prices LLM stages like the profile of the whole model, and no other stages.
TEST(ProfiledCostModel, OfATextModelPricesItsStages) {
  const ProfiledCostModel whole(known_profile());
  const ProfiledCostModel text(fixtures::known_text_profile());
  Stage stage = whole_stage(Recomputation::selective);
  stage.encoder_layers = 0;
  stage.connector = false;
  const Work work{{}, kWork.llm};
  for (const Op op : {Op::forward, Op::backward, Op::backward_input, Op::backward_weight}) {
    EXPECT_GT(text.compute(op, stage, work).count(), 0);
    EXPECT_EQ(text.compute(op, stage, work), whole.compute(op, stage, work));
    EXPECT_EQ(text.workspace(op, stage, work), whole.workspace(op, stage, work));
  }
  EXPECT_EQ(text.activation(stage, work), whole.activation(stage, work));
  EXPECT_EQ(text.model_state(stage), whole.model_state(stage));
  EXPECT_EQ(text.reach(stage, work).times(), whole.reach(stage, work).times());
  stage.encoder_layers = 1;
  try {
    text.compute(Op::forward, stage, kWork);
    ADD_FAILURE() << "expected an Error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no unit 'patches'"), std::string::npos) << error.what();
  }
}

}  // namespace profiled_test
}  // namespace dflop
