// Tests the initial values of a run without weights, and which module's learning rate applies to each tensor.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/backend/content/golden_run.hpp"

namespace dflop {
namespace first_values_test {

using testing::GoldenModel;

/// Returns weights for a golden model's architecture, drawn only from the seed.
WholeTensors drawn(const GoldenModel& model) {
  const Plan plan = testing::golden_ways(model.spec).front().plan;
  HostWorld world(plan.gpus());
  LiveExecutor executor(plan, model.spec, world, LiveOptions{DType::f32, 7, model.contents, nullptr});
  return executor.read(ParameterStore::Kind::weight);
}

/// The position table of Qwen2-Audio is never trained, so noise in it would stay. The golden model's table,
/// made by transformers, is in f32, and so are its sines of arguments up to 31.
TEST(FirstValues, FrozenPositionsAreSinusoids) {
  const GoldenModel model = testing::read_golden_model("qwen2-audio");
  const Plan plan = testing::golden_ways(model.spec).front().plan;
  const testing::GoldenRun golden(model, plan, DType::f32);
  const std::vector<double> expected =
      golden.executor->read(ParameterStore::Kind::weight).at("encoder.positions").values;
  const std::vector<double> found = drawn(model).at("encoder.positions").values;
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 2e-6) << i;
}

/// InternVL's layer scales start at 0.1, as in its config.
TEST(FirstValues, LayerScalesComeFromTheConfig) {
  const GoldenModel model = testing::read_golden_model("internvl-300m-style");
  const WholeTensors weights = drawn(model);
  for (const char* scale : {"encoder.layers.0.scale1", "encoder.layers.1.scale2"}) {
    for (const double value : weights.at(scale).values) ASSERT_EQ(value, static_cast<double>(0.1F)) << scale;
  }
}

/// Modules are assigned as in transformers: Qwen2-Audio's last norm belongs to the encoder
/// (audio_tower.layer_norm), the last norms of Qwen2.5-VL and InternVL belong to the connector
/// (visual.merger, multi_modal_projector).
TEST(FirstValues, LearningRatesComeFromTheModules) {
  ModuleRates rates;
  rates.encoder = 2;
  rates.connector = 3;
  rates.llm = 4;
  const std::map<std::string, double> norms{
      {"qwen2-audio", 2}, {"qwen2.5-vl", 3}, {"internvl-300m-style", 3}};
  for (const auto& [name, norm] : norms) {
    const ModelSpec model = testing::read_golden_model(name).spec;
    StagePlace place;
    place.stage.encoder_layers = model.encoder.layers;
    place.stage.connector = place.patches = true;
    place.stage.llm_layers = model.llm.layers;
    place.stage.embedding = place.stage.head = true;
    std::map<std::string, double> found;
    for (const Parameter& parameter : stage_parameter_list(model, place, 0))
      found[parameter.name] = rates.of(parameter);
    EXPECT_EQ(found.at("encoder.norm.gamma"), norm) << name;
    EXPECT_EQ(found.at("connector.0"), 3) << name;
    EXPECT_EQ(found.at("encoder.layers.0.qkv"), 2) << name;
    EXPECT_EQ(found.at("llm.embedding"), 4) << name;
  }
}

}  // namespace first_values_test
}  // namespace dflop
