// Losses and gradients of real architectures equal transformers' under every plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>
#include <vector>

#include "backend/model/parameter_list.hpp"
#include "core/program/lowering.hpp"
#include "tests/backend/content/golden_run.hpp"

namespace dflop {
namespace golden_test {

using testing::GoldenModel;
using testing::GoldenRun;
using testing::GoldenWay;
using testing::GradientDistance;

class GoldenModels : public ::testing::TestWithParam<std::string> {};

/// The loss processes seven rows at once, and fourteen under tp 2.
void take_few_rows_at_once(ModelSpec& model) {
  model.llm.logits_at_once = 7 * model.llm.vocabulary;
}

/// Rows in multiples of 32 pad all MLPs except MLPs of width 96, which they pad only under tp 2.
TEST_P(GoldenModels, LossAndGradientsEqualTransformersUnderEveryPlan) {
  struct Numbers {
    DType dtype;
    int row_alignment;
  };
  const GoldenModel model = testing::read_golden_model(GetParam(), take_few_rows_at_once);
  for (const GoldenWay& way : testing::golden_ways(model.spec)) {
    for (const auto& [dtype, row_alignment] : {Numbers{DType::f64, 1}, {DType::f64, 32}, {DType::f32, 1}}) {
      SCOPED_TRACE(way.name + (dtype == DType::f64 ? ", f64" : ", f32") + ", rows of " +
                   std::to_string(row_alignment));
      GoldenRun run(model, way.plan, dtype, nullptr, row_alignment);
      StepOptions options;
      options.update = false;
      const double tolerance = dtype == DType::f64 ? 1e-10 : 1e-5;
      EXPECT_NEAR(run.executor->step(run.iteration, options).loss, model.loss, tolerance * model.loss);
      for (const GradientDistance& tensor : gradient_distances(model, *run.executor)) {
        EXPECT_LE(tensor.largest, tolerance) << tensor.name;
      }
    }
  }
}

/// Runs the golden AdamW steps, with clipping at norm 1 and weight decay of matrices.
TEST_P(GoldenModels, LossesOfAdamWEqualTransformersUnderEveryPlan) {
  const GoldenModel model = testing::read_golden_model(GetParam());
  for (GoldenWay way : testing::golden_ways(model.spec)) {
    for (const auto& [shards, row_alignment] : {std::pair{false, 1}, {true, 1}, {true, 32}}) {
      SCOPED_TRACE(way.name + (shards ? ", ZeRO-1" : "") + ", rows of " + std::to_string(row_alignment));
      way.plan.clip_gradients = true;
      way.plan.zero1 = shards;
      GoldenRun run(model, way.plan, DType::f64, nullptr, row_alignment);
      for (std::size_t step = 0; step < testing::golden_steps(model); ++step) {
        const LiveResult result = run.adamw_step(model, step);
        EXPECT_NEAR(result.loss, model.losses[step], 1e-5 * model.losses[step]) << step;
        if (step < model.rates.size()) {
          EXPECT_NEAR(result.gradient_norm.value_or(0), model.gradient_norms[step],
                      1e-5 * model.gradient_norms[step]);
        }
      }
    }
  }
}

/// Qwen3-VL's golden model has 3 encoder layers, of which the first two feed the first two of 3 LLM layers:
/// 16 values wide, 48 in the LLM. Between the encoder's layers, rows have one feature after layer 0 and both
/// after layer 1; between the LLM's, the second feature after layer 0.
TEST(DeepFeatures, TravelNextToTheActivations) {
  const ModelSpec model = testing::read_golden_model("qwen3-vl").spec;
  ASSERT_EQ(model.architecture->deepstack, (std::vector<int>{0, 1}));
  const std::int64_t encoder = model.encoder.hidden;
  const std::int64_t llm = model.llm.hidden;
  std::vector<Stage> stages(6);
  for (std::size_t s = 0; s < 3; ++s) {
    stages[s].encoder_layers = 1;
    stages[3 + s].llm_layers = 1;
  }
  std::vector<std::int64_t> widths;
  for (std::size_t s = 0; s < 5; ++s) widths.push_back(boundary_width(stages, s, model));
  EXPECT_EQ(widths, (std::vector<std::int64_t>{2 * encoder, 3 * encoder, 3 * llm, 2 * llm, llm}));
}

/// Folders of the whole Qwen2.5-Omni have the thinker's tensors under "thinker."; transformers' class of the
/// thinker alone writes them without it.
TEST(OmniNames, AreThoseOfTheThinker) {
  const ModelSpec model = testing::read_golden_model("qwen2.5-omni-thinker").spec;
  for (const std::string& prefix : {std::string("thinker."), std::string()}) {
    const StoredNames names(model, [&](const std::string& name) {
      return prefix.empty() ? !name.starts_with("thinker.") : name.starts_with(prefix);
    });
    const auto name_of = [&](const char* tensor) { return names.parts(tensor, 16, 16).front().name; };
    EXPECT_EQ(name_of("second.norm.gamma"), prefix + "audio_tower.ln_post.weight");
    EXPECT_EQ(name_of("second.connector.0"), prefix + "audio_tower.proj.weight");
    EXPECT_EQ(name_of("second.layers.1.down"), prefix + "audio_tower.layers.1.fc2.weight");
    EXPECT_EQ(name_of("encoder.layers.0.attention_out"), prefix + "visual.blocks.0.attn.proj.weight");
    EXPECT_EQ(name_of("connector.1"), prefix + "visual.merger.mlp.2.weight");
    EXPECT_EQ(name_of("llm.embedding"), prefix + "model.embed_tokens.weight");
    EXPECT_TRUE(names.parts("second.positions", 32, 16).front().absent);
    EXPECT_FALSE(names.parts("second.conv1", 16, 48).front().absent);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenModels, ::testing::ValuesIn(testing::golden_models()),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

}  // namespace golden_test
}  // namespace dflop
