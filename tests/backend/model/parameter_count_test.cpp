// The cost model's parameter count of a stage equals the tensors that a live run makes there.
#include <gtest/gtest.h>

#include <filesystem>

#include "backend/model/parameter_list.hpp"
#include "core/program/lowering.hpp"
#include "core/support/random.hpp"
#include "traces/families/hugging_face.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace parameter_count_test {

/// Returns the number of parameters in the tensors, without key biases that stay zero, as the model does not
/// have them.
std::int64_t count_of(const std::vector<Parameter>& parameters) {
  std::int64_t sum = 0;
  for (const Parameter& parameter : parameters) {
    sum += parameter.count() - parameter.fixed_rows.size() * parameter.held_columns();
  }
  return sum;
}

/// Returns a uniform plan of four stages with layers anywhere.
Plan random_plan(const ModelSpec& model, int tp, Random& random) {
  Plan plan;
  plan.layout = Layout::uniform;
  plan.encoder = {tp, 4, 1, {0, 0, 0, 0}};
  plan.llm = {tp, 4, 1, {0, 0, 0, 0}};
  for (int layer = 0; layer < model.encoder.layers; ++layer) ++plan.encoder.layers[random.below(4)];
  for (int layer = 0; layer < model.llm.layers; ++layer) ++plan.llm.layers[random.below(4)];
  return plan;
}

TEST(ParameterCount, EqualsTheCountOfLiveStages) {
  namespace fs = std::filesystem;
  Random random(3);
  int models = 0;
  for (const char* folder : {"models", "released"}) {
    for (const auto& entry : fs::directory_iterator(fs::path(DFLOP_SOURCE_DIR) / "tests/golden" / folder)) {
      if (!entry.is_directory()) continue;
      const std::string file = (entry.path() / "config.json").string();
      const ModelSpec model = parse_hugging_face(read_text_file(file), file);
      for (const int tp : {1, 2}) {
        const bool is_whole = (model.encoder.layers > 0 && model.connector.widths.size() == 2) ||
                              (model.second && model.second->connector.widths.size() == 2);
        const bool is_odd = model.llm.vocabulary % tp != 0;
        if (tp > 1 && (is_whole || is_odd || !is_splittable(model, tp, tp))) continue;
        ++models;
        for (int draw = 0; draw < 5; ++draw) {
          const Plan plan = random_plan(model, tp, random);
          for (const StagePlace& place : stage_places(plan_stages(plan, model))) {
            EXPECT_EQ(stage_parameters(place.stage, model),
                      count_of(stage_parameter_list(model, place, tp - 1)))
                << file << " at tp " << tp;
          }
        }
      }
    }
  }
  EXPECT_GT(models, 20);
}

}  // namespace parameter_count_test
}  // namespace dflop
