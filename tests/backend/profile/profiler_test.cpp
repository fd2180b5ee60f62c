// The profiler on a tiny model: its results have the form of a profile.
#include "backend/profile/profiler.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <utility>

#include "backend/host/world.hpp"
#include "core/program/lowering.hpp"
#include "costmodel/profiled/profiled.hpp"
#include "tests/backend/run/live_model.hpp"
#include "traces/files/specs.hpp"

namespace dflop {
namespace profiler_test {

ProfileTables measured(DType dtype, const ModelSpec& model = testing::live_model()) {
  const std::unique_ptr<World> world = std::make_unique<HostWorld>(2);
  ProfilerOptions options;
  options.budget = Seconds(0.05);
  options.llm = {64, 64};
  options.dtype = dtype;
  return measure_profile(model, *world, options);
}

TEST(Profiler, MeasuresAllUnits) {
  const ProfileTables profile = measured(DType::f32);
  EXPECT_EQ(profile.device, "host");
  EXPECT_EQ(profile.model, profiled_model(testing::live_model()));
  ASSERT_EQ(profile.tp.size(), 1U);
  for (std::size_t u = 0; u < kProfileUnits; ++u) {
    const auto unit = static_cast<ProfileUnit>(u);
    const UnitPoints& points = profile.tp[0].units[u];
    ASSERT_GE(points.size(), 2U) << to_string(unit);
    EXPECT_LE(points.size(), 3U) << to_string(unit);  // 16, 32, 64
    for (const ProfilePoint& point : points) {
      EXPECT_GT(point.forward_s + point.backward_input_s + point.backward_weight_s, 0) << to_string(unit);
      EXPECT_EQ(point.length > 0, is_attention(unit));
    }
  }
  EXPECT_EQ(parse_profile_tables(to_json(profile), "measured"), profile);
}

/// A head in chunks keeps for each token (24 wide in f32) the norm's input, its statistic and a gradient, but
/// no logits. During its forward, there are 64 logits per token.
TEST(Profiler, MeasuresAHeadInChunks) {
  ModelSpec model = testing::live_model();
  model.llm.logits_at_once = std::int64_t{1} << 28;
  const ProfileTables profile = measured(DType::f32, model);
  EXPECT_EQ(profile.model.llm.logits_at_once, model.llm.logits_at_once);
  const TpProfile& tables = profile.tp.at(0);
  EXPECT_NEAR(tables.activation.head, 4 * (24 + 1 + 24), 1);
  EXPECT_NEAR(tables.forward_buffers.head, 4 * (24 + 24 + 64 + 3), 10);
  EXPECT_EQ(parse_profile_tables(to_json(profile), "measured"), profile);
}

/// Buffers count per token with logits, also if only few rows have logits at once. The other data of a chunk,
/// 24 + 3 values per row, then also exists only for few rows.
TEST(Profiler, MeasuresAHeadInShortChunks) {
  ModelSpec model = testing::live_model();
  model.llm.logits_at_once = 64;
  const TpProfile tables = measured(DType::f32, model).tp.at(0);
  EXPECT_NEAR(tables.forward_buffers.head, 4 * (24 + 64), 4 * 3 + 10);
}

/// 511 of 512 rows may have logits at once, so there are two halves. Buffers are counted as if all rows had
/// logits.
TEST(Profiler, MeasuresAHeadInHalves) {
  ModelSpec model = testing::live_model();
  model.llm.logits_at_once = 64 * 511;
  const TpProfile tables = measured(DType::f32, model).tp.at(0);
  EXPECT_NEAR(tables.forward_buffers.head, 4 * (24 + 24 + 64 + 3), 4 * (24 + 3) / 2 + 10);
}

/// Five encoder tokens become one connector token, so 16, 32 and 64 tokens are rounded up to multiples.
/// Attention has whole sequences and at least 256 tokens.
TEST(Profiler, MeasuresWholeTokensAndSequences) {
  ModelSpec model = testing::live_model();
  model.connector = {{5 * 16, 24}, 5};
  const ProfileTables profile = measured(DType::f32, model);
  const UnitPoints& connector = profile.tp.at(0).of(ProfileUnit::connector);
  for (std::size_t i = 0; i < connector.size(); ++i) {
    EXPECT_EQ(connector[i].tokens, (std::array<std::int64_t, 3>{20, 35, 65}.at(i)));
  }
  const UnitPoints& attention = profile.tp.at(0).of(ProfileUnit::llm_attention);
  for (std::size_t i = 0; i < attention.size(); ++i) {
    EXPECT_EQ(attention[i].length, std::int64_t{16} << i);
    EXPECT_EQ(attention[i].tokens, 256);
  }
}

const std::vector<TpMode> kModes = {{1, false}, {2, false}, {2, true}};

/// At tp 1, one of three busy ranks measures; at tp 2, one pair, and one rank is left over.
TEST(Profiler, MeasuresTpGroupsWhileOthersAreBusy) {
  const std::unique_ptr<World> world = std::make_unique<HostWorld>(3);
  ProfilerOptions options;
  options.budget = Seconds(0.05);
  options.llm = {32, 32};
  options.modes = kModes;
  options.busy = 3;
  const ProfileTables profile = measure_profile(testing::live_model(), *world, options);
  EXPECT_EQ(profile.settings.busy_ranks, 3);
  ASSERT_EQ(profile.tp.size(), kModes.size());
  for (std::size_t t = 0; t < kModes.size(); ++t) {
    EXPECT_EQ(profile.tp[t].mode, kModes[t]);
    for (const UnitPoints& points : profile.tp[t].units) {
      ASSERT_EQ(points.size(), 2U);  // 16, 32
      for (const ProfilePoint& p : points)
        EXPECT_GT(p.forward_s + p.backward_input_s + p.backward_weight_s, 0);
    }
  }
  EXPECT_EQ(parse_profile_tables(to_json(profile), "measured"), profile);
}

std::unique_ptr<World> shared_world(int devices, int cores, double share) {
  WorldOptions options;
  options.device_cores = cores;
  options.shared_devices = devices;
  options.first_share = share;
  return std::make_unique<HostWorld>(2 * devices, options);
}

ProfilerOptions options_for_parts(std::vector<double> shares, int cores) {
  ProfilerOptions options;
  options.budget = Seconds(0.05);
  options.llm = {32, 32};
  options.shares = std::move(shares);
  options.make_shared_world = [cores](int devices, double share) {
    return shared_world(devices, cores, share);
  };
  return options;
}

std::unique_ptr<World> whole_world(int ranks, int cores) {
  WorldOptions options;
  options.device_cores = cores;
  return std::make_unique<HostWorld>(ranks, options);
}

/// The profile covers one of three cores and all of them, at tp 1 and, on two devices, at tp 2.
TEST(Profiler, MeasuresPartsOfDevicesNextToNeighbors) {
  const std::unique_ptr<World> world = whole_world(2, 3);
  ProfilerOptions options = options_for_parts({1.0 / 3, 1}, 3);
  options.modes = {{1, false}, {2, false}};
  const ProfileTables profile = measure_profile(testing::live_model(), *world, options);
  EXPECT_EQ(profile.quanta, 3);
  ASSERT_EQ(profile.tp.size(), 4U);
  for (std::size_t t = 0; t < profile.tp.size(); ++t) {
    const TpProfile& tables = profile.tp[t];
    EXPECT_EQ(tables.mode, options.modes[t / 2]);
    EXPECT_EQ(tables.quanta, t % 2 == 0 ? 1 : 3);
    ASSERT_EQ(tables.part.has_value(), tables.quanta < 3);
    for (const UnitPoints& points : tables.units) EXPECT_EQ(points.size(), 2U);
    if (!tables.part) continue;
    EXPECT_GT(tables.part->optimizer.at(1e6), 0);
    EXPECT_GT(tables.part->optimizer_beside, 0);
    for (const PassFactors& factors : tables.part->beside) {
      EXPECT_GE(factors.forward, 0);  // 0 if a difference of two times was negative
      EXPECT_LT(factors.forward, 1e3);
    }
    // The memory of a rank does not depend on its number of cores.
    EXPECT_EQ(tables.activation, profile.tp[t + 1].activation);
  }
  EXPECT_EQ(parse_profile_tables(to_json(profile), "measured"), profile);
}

/// Existing tables are kept, and the tables of a part come before the tables of the whole device.
TEST(Profiler, AddsPartsToTables) {
  const std::unique_ptr<World> world = whole_world(2, 2);
  const ProfileTables whole = measure_profile(testing::live_model(), *world, options_for_parts({1}, 2));
  ASSERT_EQ(whole.tp.size(), 1U);
  EXPECT_EQ(whole.tp[0].quanta, 2);
  ProfilerOptions options = options_for_parts({0.5, 1}, 2);
  options.earlier = &whole;
  const std::unique_ptr<World> other = whole_world(2, 2);
  const ProfileTables both = measure_profile(testing::live_model(), *other, options);
  ASSERT_EQ(both.tp.size(), 2U);
  EXPECT_EQ(both.tp[0].quanta, 1);
  EXPECT_EQ(both.tp[1], whole.tp[0]);
}

/// With two encoders, each mode's tables are complete before the next mode, so a stopped run leaves a profile
/// to resume from. The results would differ in their seconds if they were measured again.
TEST(Profiler, ResumesWithTwoEncoders) {
  const std::unique_ptr<World> world = std::make_unique<HostWorld>(2);
  ProfilerOptions options;
  options.budget = Seconds(0.05);
  options.llm = {32, 32};
  options.modes = {{1, false}, {2, false}};
  std::vector<ProfileTables> saved;
  options.on_tables = [&](const ProfileTables& tables) { saved.push_back(tables); };
  const ProfileTables whole = measure_profile(testing::hearing_model(), *world, options);
  ASSERT_EQ(whole.second_tp.size(), 2U);
  ASSERT_EQ(saved.size(), 1U);
  EXPECT_EQ(parse_profile_tables(to_json(saved[0]), "saved"), saved[0]);
  ASSERT_EQ(saved[0].tp.size(), 1U);
  EXPECT_EQ(saved[0].second_tp, std::vector<TpProfile>{whole.second_tp[0]});
  options.earlier = saved.data();
  options.on_tables = {};
  const std::unique_ptr<World> other = std::make_unique<HostWorld>(2);
  const ProfileTables resumed = measure_profile(testing::hearing_model(), *other, options);
  ASSERT_EQ(resumed.second_tp.size(), 2U);
  EXPECT_EQ(resumed.tp[0], whole.tp[0]);
  EXPECT_EQ(resumed.second_tp[0], whole.second_tp[0]);
  EXPECT_EQ(resumed.second_tp[1].mode, whole.second_tp[1].mode);
  EXPECT_EQ(parse_profile_tables(to_json(resumed), "resumed"), resumed);
}

/// Only layers are recomputed.
TEST(Profiler, MeasuresRecomputationOfLinearParts) {
  const ProfileTables profile = measured(DType::f32);
  for (std::size_t u = 0; u < kProfileUnits; ++u) {
    const auto unit = static_cast<ProfileUnit>(u);
    const bool linear = unit == ProfileUnit::encoder_linear || unit == ProfileUnit::llm_linear;
    for (const ProfilePoint& p : profile.tp[0].units[u]) EXPECT_EQ(p.recompute_s.has_value(), linear);
  }
}

TEST(Profiler, MeasuresOptimizerAndCommunication) {
  const ProfileTables profile = measured(DType::f32);
  EXPECT_GT(profile.optimizer.at(1e6), 0);
  EXPECT_GT(profile.message.at(1e6), 0);
  ASSERT_EQ(profile.all_reduce.size(), 1U);
  EXPECT_GT(profile.all_reduce.at(2).at(1e6), 0);
}

/// An encoder layer of width 16 and MLP width 24, with two statistics per norm, keeps in f32 values per
/// token: x, normed1, x1, normed2 (4 * 16), qkv (3 * 16), heads (16), up and activated (2 * 24), statistics
/// of two norms (2 * 2) and of 4 heads, in total 184. Selective recomputation drops heads and their
/// statistics (20), full recomputation all except x.
TEST(Profiler, CountsActivations) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const double bytes = static_cast<double>(bytes_of(dtype));
    const BytesPerToken kept = measured(dtype).tp.at(0).activation;
    EXPECT_DOUBLE_EQ(kept.encoder_layer[0], 184 * bytes);
    EXPECT_DOUBLE_EQ(kept.encoder_layer[1], 164 * bytes);
    EXPECT_DOUBLE_EQ(kept.encoder_layer[2], 16 * bytes);
    EXPECT_DOUBLE_EQ(kept.patches, 48 * bytes);
    // Head: x and the norm's output (2 * 24), its statistic, a gradient for each of 64 classes.
    EXPECT_DOUBLE_EQ(kept.head, 113 * bytes);
  }
}

/// As above with tp 2: each rank has two heads, half of qkv, heads, up and activated (24 + 8 + 24) and the
/// statistics of 2 heads, and all of the other 68: 126. Sequence parallelism halves these 68, too: 92. It
/// also halves the pixels, and everything of the head except the gradients of 32 classes.
TEST(Profiler, CountsActivationsOfARank) {
  const std::unique_ptr<World> world = std::make_unique<HostWorld>(2);
  ProfilerOptions options;
  options.budget = Seconds(0.05);
  options.llm = {32, 32};
  options.modes = {{2, false}, {2, true}};
  const ProfileTables profile = measure_profile(testing::live_model(), *world, options);
  const BytesPerToken& whole = profile.tp.at(0).activation;
  const BytesPerToken& shards = profile.tp.at(1).activation;
  EXPECT_DOUBLE_EQ(whole.encoder_layer[0], 126 * 4);
  EXPECT_DOUBLE_EQ(shards.encoder_layer[0], 92 * 4);
  EXPECT_DOUBLE_EQ(whole.encoder_layer[2], 16 * 4);
  EXPECT_DOUBLE_EQ(shards.encoder_layer[2], 8 * 4);
  EXPECT_DOUBLE_EQ(whole.patches, 48 * 4);
  EXPECT_DOUBLE_EQ(shards.patches, 24 * 4);
  EXPECT_DOUBLE_EQ(whole.head, (49 + 32) * 4);
  EXPECT_DOUBLE_EQ(shards.head, (24.5 + 32) * 4);
}

/// If a forward keeps only its input, the other activations are freed when it ends and return when the
/// backward starts. The buffers of a backward are at least the gradients of the layer's input and output, 2 *
/// 16 f32 values.
TEST(Profiler, CountsBuffers) {
  const TpProfile profile = measured(DType::f32).tp.at(0);
  const double dropped = profile.activation.encoder_layer[0] - profile.activation.encoder_layer[2];
  EXPECT_GE(profile.forward_buffers.encoder_layer[0], 16 * 4);  // the output
  EXPECT_GE(profile.backward_buffers.encoder_layer[0], 32 * 4);
  EXPECT_DOUBLE_EQ(profile.forward_buffers.encoder_layer[2],
                   profile.forward_buffers.encoder_layer[0] + dropped);
  EXPECT_DOUBLE_EQ(profile.backward_buffers.encoder_layer[2],
                   profile.backward_buffers.encoder_layer[0] + dropped);
}

/// For a model without an encoder, only the LLM is measured: embedding, layers and head. Other units keep
/// nothing, and all tokens are text.
TEST(Profiler, MeasuresTextModels) {
  ModelSpec model = testing::live_model();
  const ProfileTables both = measured(DType::f32, model);
  model.encoder = {};
  model.connector = {};
  const ProfileTables profile = measured(DType::f32, model);
  EXPECT_EQ(profile.model, profiled_model(model));
  for (std::size_t u = 0; u < kProfileUnits; ++u) {
    const auto unit = static_cast<ProfileUnit>(u);
    const UnitPoints& points = profile.tp.at(0).units[u];
    EXPECT_EQ(points.size() >= 2, has_unit(model, unit)) << to_string(unit);
    EXPECT_EQ(points.empty(), !has_unit(model, unit)) << to_string(unit);
  }
  const BytesPerToken& kept = profile.tp.at(0).activation;
  EXPECT_EQ(kept.encoder_layer, (std::array<double, 3>{}));
  EXPECT_EQ(kept.connector + kept.patches, 0);
  EXPECT_EQ(kept.llm_layer, both.tp.at(0).activation.llm_layer);
  EXPECT_EQ(kept.head, both.tp.at(0).activation.head);
  EXPECT_EQ(parse_profile_tables(to_json(profile), "measured"), profile);
}

}  // namespace profiler_test
}  // namespace dflop
