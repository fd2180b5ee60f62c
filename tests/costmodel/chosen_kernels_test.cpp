#include "costmodel/profiled/chosen_kernels.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "costmodel/profiled/profiled.hpp"

namespace dflop {
namespace chosen_kernels_test {
namespace {

/// Returns an LLM of two layers that two tp ranks can share.
ModelSpec some_model() {
  ModelSpec model;
  model.name = "some";
  TransformerSpec& llm = model.llm;
  llm.layers = 2;
  llm.hidden = 64;
  llm.ffn = 96;
  llm.heads = 4;
  llm.kv_heads = 2;
  llm.head_dim = 16;
  llm.gated_mlp = true;
  llm.causal = true;
  llm.vocabulary = 512;
  model.encoder = llm;
  model.encoder.layers = 0;
  model.connector.widths = {64, 64};
  return model;
}

/// Returns a profile in which each pass of each unit takes a given number of seconds per token.
ProfileTables flat_profile(const std::vector<std::pair<int, double>>& seconds_by_tp) {
  ProfileTables profile;
  profile.dtype = "f32";
  profile.model = some_model();
  for (const auto& [tp, seconds] : seconds_by_tp) {
    TpProfile& of_tp = profile.tp.emplace_back();
    of_tp.mode = {tp, false};
    for (std::size_t u = 0; u < kProfileUnits; ++u) {
      for (const std::int64_t tokens : {256, 1024}) {
        const bool attention = is_attention(static_cast<ProfileUnit>(u));
        const double time = seconds * static_cast<double>(tokens);
        of_tp.units[u].push_back({tokens, attention ? tokens / 4 : 0, time, time, time, {}});
      }
    }
  }
  return profile;
}

VariantNames two_of_each() {
  VariantNames names;
  for (auto& of_operation : names) of_operation = {"default", "other"};
  return names;
}

/// Gives the two variants of a call's key different means, known with certainty.
void set_means(KernelTable& table, const KernelCall& call, double usual, double other) {
  for (int i = 0; i < 10; ++i) {
    table.entry(KernelKey(call))[0].add(usual);
    table.entry(KernelKey(call))[1].add(other);
  }
}

TEST(ChosenKernels, SaveTheDifferenceOfMeans) {
  const KernelCall call{.inner = 64, .outer = 512, .tokens = 1200};
  ASSERT_EQ(KernelKey(call).tokens, 1280);  // of [1024, 1536)
  KernelTable table(two_of_each());
  set_means(table, call, 5000, 4000);
  // 1000 ns for 1280 tokens are 937.5 for 1200.
  EXPECT_DOUBLE_EQ(chosen_saving_ns(table, call), 937.5);
  // The estimate comes from the single known bucket of the same shape: 2000 tokens save 1562.5.
  EXPECT_DOUBLE_EQ(chosen_saving_ns(table, {.inner = 64, .outer = 512, .tokens = 2000}), 1562.5);
  EXPECT_EQ(chosen_saving_ns(table, {.inner = 65, .outer = 512, .tokens = 1200}), 0);
  // A slower variant is not chosen.
  KernelTable slower(two_of_each());
  set_means(slower, call, 4000, 5000);
  EXPECT_EQ(chosen_saving_ns(slower, call), 0);
}

TEST(ChosenKernels, SaveInEachPassAsItsCallsDo) {
  const ProfileTables profile = flat_profile({{1, 1e-6}});
  KernelTable table(two_of_each());
  // Only the head's forward has this key: [64 -> 512]. 1024 tokens lie in the bucket of 1280.
  set_means(table, {.operation = KernelOperation::linear, .inner = 64, .outer = 512, .tokens = 1024}, 100e3,
            60e3);
  const ProfileTables chosen = with_chosen_kernels(profile, table);
  const ProfilePoint& before = profile.tp[0].of(ProfileUnit::head)[1];
  const ProfilePoint& after = chosen.tp[0].of(ProfileUnit::head)[1];
  EXPECT_DOUBLE_EQ(after.forward_s, before.forward_s - 40e-6 * 1024 / 1280);
  EXPECT_EQ(after.backward_input_s, before.backward_input_s);
  EXPECT_EQ(after.backward_weight_s, before.backward_weight_s);
  EXPECT_EQ(chosen.tp[0].of(ProfileUnit::llm_linear), profile.tp[0].of(ProfileUnit::llm_linear));
  // A layer has four sizes, and their savings add up: q, k, v [64 -> 128], out [64 -> 64], up [64 -> 192] and
  // down [96 -> 64]. A layer's recomputation was not measured separately.
  KernelTable layer(two_of_each());
  const std::pair<int, int> sizes[] = {{64, 128}, {64, 64}, {64, 192}, {96, 64}};
  for (const auto& [inner, outer] : sizes) {
    set_means(layer,
              {.operation = KernelOperation::linear_backward_weight,
               .inner = inner,
               .outer = outer,
               .tokens = 1024},
              20e3, 10e3);
  }
  EXPECT_NEAR(with_chosen_kernels(profile, layer).tp[0].of(ProfileUnit::llm_linear)[1].backward_weight_s,
              1024e-6 - 4 * 10e-6 * 1024 / 1280, 1e-15);
}

/// Only the second encoder's connector has the key [40 -> 64].
TEST(ChosenKernels, SaveInTheSecondEncoder) {
  ProfileTables profile = flat_profile({{1, 1e-6}});
  profile.model.second = SecondEncoder{profile.model.llm, {{40, 64}, 1}};
  profile.second_tp = profile.tp;
  KernelTable table(two_of_each());
  set_means(table, {.operation = KernelOperation::linear, .inner = 40, .outer = 64, .tokens = 1024}, 100e3,
            60e3);
  const ProfileTables chosen = with_chosen_kernels(profile, table);
  EXPECT_DOUBLE_EQ(chosen.second_tp[0].of(ProfileUnit::connector)[1].forward_s,
                   1024e-6 - 40e-6 * 1024 / 1280);
  EXPECT_EQ(chosen.second_tp[0].of(ProfileUnit::encoder_linear),
            profile.second_tp[0].of(ProfileUnit::encoder_linear));
  EXPECT_EQ(chosen.tp, profile.tp);
}

TEST(ChosenKernels, NeverTakeLessThanNothing) {
  KernelTable table(two_of_each());
  set_means(table, {.operation = KernelOperation::linear, .inner = 64, .outer = 512, .tokens = 1024}, 1e12,
            1);
  EXPECT_EQ(with_chosen_kernels(flat_profile({{1, 1e-6}}), table).tp[0].of(ProfileUnit::head)[1].forward_s,
            0);
}

/// Returns the time of forward and backward of a stage with the whole LLM.
double stage_time(const ProfileTables& profile, int tp) {
  Stage stage;
  stage.llm_layers = 2;
  stage.embedding = stage.head = true;
  stage.tp = tp;
  stage.sequence_parallel = false;
  stage.recomputation = Recomputation::none;
  const Work work{{}, {4, 1024, 1024 * 256}};
  const ProfiledCostModel cost(profile);
  return (cost.compute(Op::forward, stage, work) + cost.compute(Op::backward, stage, work)).count();
}

TEST(ChosenKernels, MayChangeWhichPlanIsTheFastest) {
  // With default kernels two tp ranks take 0.55 of the time of one. With twice as many ranks for the batch,
  // single ranks would take 0.5 of it, so tp 2 loses by little. A faster variant that only the halves of
  // layers have, 64 -> 96, reverses this.
  const ProfileTables profile = flat_profile({{1, 1e-6}, {2, 0.55e-6}});
  EXPECT_GT(stage_time(profile, 2), 0.5 * stage_time(profile, 1));
  KernelTable table(two_of_each());
  for (const KernelOperation operation : {KernelOperation::linear, KernelOperation::linear_backward_input,
                                          KernelOperation::linear_backward_weight}) {
    set_means(table, {.operation = operation, .inner = 64, .outer = 96, .tokens = 1024}, 400e3, 50e3);
  }
  const ProfileTables chosen = with_chosen_kernels(profile, table);
  EXPECT_LT(stage_time(chosen, 2), 0.5 * stage_time(chosen, 1));
  EXPECT_EQ(stage_time(chosen, 1), stage_time(profile, 1));
}

}  // namespace
}  // namespace chosen_kernels_test
}  // namespace dflop
