// A model with tied embeddings has copies of the embedding on two pipeline ranks; a checkpoint stores only
// one.
#include <gtest/gtest.h>

#include <filesystem>

#include "backend/content/folder_weights.hpp"
#include "backend/host/world.hpp"
#include "backend/run/live_executor.hpp"
#include "core/program/lowering.hpp"
#include "tests/backend/content/golden_model.hpp"
#include "tests/backend/run/live_plans.hpp"
#include "traces/checkpoints/folder.hpp"
#include "traces/checkpoints/pieces.hpp"

namespace dflop {
namespace tied_checkpoint_test {

using testing::GoldenModel;

Plan text_plan(const ModelSpec& model, int tp, int pp, int dp) {
  Plan plan;
  plan.layout = Layout::uniform;
  plan.encoder = {tp, pp, dp, std::vector<int>(static_cast<std::size_t>(pp), 0)};
  plan.llm = {tp, pp, dp, split_layers(model.llm.layers, pp)};
  plan.microbatches = 1;
  return plan;
}

/// A TiedRun runs the golden model with tied embeddings.
struct TiedRun {
  TiedRun(const GoldenModel& model, Plan plan, DType dtype) : world(plan.ranks()) {
    plan.gbs = static_cast<int>(model.samples.size());
    iteration.plan = plan;
    iteration.samples = model.samples;
    iteration.assignment = testing::dealt(plan, model.samples.size());
    iteration.program = lower(plan, model.spec, model.samples, iteration.assignment, plan_order(plan));
    const FolderWeights weights(model.spec, model.folder);
    executor = std::make_unique<LiveExecutor>(iteration.plan, model.spec, world,
                                              LiveOptions{dtype, 7, model.contents, &weights});
  }
  double step(std::int64_t number) const {
    StepOptions options;
    options.optimizer.step = number;
    options.optimizer.learning_rate = 1e-2;
    return executor->step(iteration, options).loss;
  }

  HostWorld world;
  Iteration iteration;
  std::unique_ptr<LiveExecutor> executor;
};

TEST(TiedCheckpointLive, AnyPlanResumesWithTheSameLoss) {
  const GoldenModel model = testing::read_golden_model("qwen2-tied");
  const auto folder = std::filesystem::path(::testing::TempDir()) / "dflop_tied_checkpoint";
  const std::vector<Plan> plans{text_plan(model.spec, 1, 2, 1), text_plan(model.spec, 2, 2, 1),
                                text_plan(model.spec, 1, 1, 2), text_plan(model.spec, 1, 2, 2)};
  for (std::size_t p = 0; p < plans.size(); ++p) {
    std::filesystem::remove_all(folder);
    const TiedRun writer(model, plans[p], DType::f64);
    for (int step = 1; step <= 2; ++step) writer.step(step);
    CheckpointIndex index;
    index.step = 2;
    writer.executor->save(folder.string(), index);
    const std::string checkpoint = step_folder(folder.string(), 2);
    const CheckpointReader written(checkpoint);
    const PiecedTensor& embedding = written.at(TensorKind::weight, "llm.embedding");
    EXPECT_EQ(embedding.pieces.size(), static_cast<std::size_t>(plans[p].llm.tp));
    const double expected = writer.step(3);
    const double later = writer.step(4);
    for (std::size_t other = 0; other < plans.size(); ++other) {
      const TiedRun reader(model, plans[other], DType::f64);
      reader.executor->load(checkpoint);
      const double found = reader.step(3);
      const double found_later = reader.step(4);  // after a step that changes both copies in the same way
      if (other == p) {
        EXPECT_EQ(found, expected);
        EXPECT_EQ(found_later, later);
      } else {
        EXPECT_NEAR(found, expected, 1e-11 * expected) << p << " read by " << other;
        EXPECT_NEAR(found_later, later, 1e-11 * later) << p << " read by " << other;
      }
    }
  }
  std::filesystem::remove_all(folder);
}

}  // namespace tied_checkpoint_test
}  // namespace dflop
