// Losses and gradients of real architectures are those that transformers computed, whatever the plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backend/content/folder_weights.hpp"
#include "backend/host/world.hpp"
#include "backend/run/live_executor.hpp"
#include "core/program/lowering.hpp"
#include "tests/backend/content/golden_model.hpp"
#include "tests/backend/run/live_plans.hpp"

namespace dflop {
namespace golden_test {

using testing::GoldenModel;
using Kind = ParameterStore::Kind;

/// A Way is one to run a model: its plan from the numbers of layers.
struct Way {
  std::string name;
  Plan plan;
};

Plan uniform(const ModelSpec& model, int tp, int pp, int dp, int microbatches) {
  Plan plan;
  plan.layout = Layout::uniform;
  plan.encoder = {tp, pp, dp, std::vector<int>(static_cast<std::size_t>(pp), 0)};
  plan.encoder.layers.front() = model.encoder.layers;
  plan.llm = {tp, pp, dp, split_layers(model.llm.layers, pp)};
  plan.microbatches = microbatches;
  plan.recomputation = Recomputation::none;
  plan.sequence_parallel = false;
  return plan;
}

Plan apart(const ModelSpec& model, ModulePlan encoder, ModulePlan llm, int microbatches) {
  Plan plan = uniform(model, 1, 1, 1, microbatches);
  plan.layout = Layout::disaggregated;
  encoder.layers = split_layers(model.encoder.layers, encoder.pp);
  llm.layers = split_layers(model.llm.layers, llm.pp);
  plan.encoder = encoder;
  plan.llm = llm;
  return plan;
}

std::vector<Way> ways(const ModelSpec& model) {
  const bool encodes = model.encoder.layers > 0;
  const bool whole_heads = model.encoder.layer_form().qk_norm;
  std::vector<Way> all{{"one rank", uniform(model, 1, 1, 1, 1)}, {"dp 2", uniform(model, 1, 1, 2, 1)}};
  all.push_back({"full recomputation", uniform(model, 1, 1, 1, 2)});
  all.back().plan.recomputation = Recomputation::full;
  all.push_back({"selective recomputation", uniform(model, 1, 1, 1, 2)});
  all.back().plan.recomputation = Recomputation::selective;
  if (!whole_heads) {
    all.push_back({"tp 2", uniform(model, 2, 1, 1, 1)});
    all.push_back({"tp 2, sequence parallel", uniform(model, 2, 1, 1, 1)});
    all.back().plan.sequence_parallel = true;
  }
  all.push_back({"pp 2", uniform(model, 1, 2, 1, 2)});
  all.push_back({"pp 2, dp 2, tp 1, in buckets", uniform(model, 1, 2, 2, 1)});
  all.back().plan.gradient_bucket = Bytes{4096};
  all.push_back({"split backward", uniform(model, 1, 2, 1, 2)});
  all.back().plan.order = OrderKind::zb_h1;
  if (encodes) {
    all.push_back({"encoder apart", apart(model, {1, 1, 2, {}}, {1, 1, 1, {}}, 1)});
    if (!whole_heads) {
      all.push_back({"encoder apart, all", apart(model, {2, 2, 1, {}}, {2, 2, 1, {}}, 2)});
      all.back().plan.sequence_parallel = true;
      all.back().plan.recomputation = Recomputation::full;
    }
  }
  return all;
}

/// A GoldenRun is a golden model at work under a plan.
struct GoldenRun {
  GoldenRun(const GoldenModel& of, const Plan& p, DType dtype) : model(of.spec), plan(p) {
    plan.gbs = static_cast<int>(of.samples.size());
    iteration.plan = plan;
    iteration.samples = of.samples;
    iteration.assignment = testing::dealt(plan, of.samples.size());
    iteration.program = lower(plan, model, of.samples, iteration.assignment, plan_order(plan));
    world = std::make_unique<HostWorld>(iteration.program.ranks());
    const FolderWeights weights(model, of.folder);
    executor =
        std::make_unique<LiveExecutor>(plan, model, *world, LiveOptions{dtype, 7, of.contents, &weights});
  }

  ModelSpec model;
  Plan plan;
  Iteration iteration;
  std::unique_ptr<World> world;
  std::unique_ptr<LiveExecutor> executor;
};

class GoldenModels : public ::testing::TestWithParam<std::string> {};

/// Compares each tensor with its largest value.
void expect_gradients(const GoldenModel& model, LiveExecutor& executor, double tolerance) {
  const WholeTensors found = executor.read(Kind::gradient);
  const WholeTensors expected = testing::from_stored(model, model.gradients, found);
  for (const auto& [name, tensor] : expected) {
    double largest = 0;
    double difference = 0;
    const auto& values = found.at(name).values;
    ASSERT_EQ(values.size(), tensor.values.size()) << name;
    for (std::size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(tensor.values[i]));
      difference = std::max(difference, std::abs(values[i] - tensor.values[i]));
    }
    EXPECT_LE(difference, tolerance * std::max(largest, 1e-6 * model.gradient_norm)) << name;
  }
}

TEST_P(GoldenModels, LossAndGradientsAreTheLibrarysUnderEveryPlan) {
  const GoldenModel model = testing::read_golden_model(GetParam());
  for (const Way& way : ways(model.spec)) {
    for (const DType dtype : {DType::f64, DType::f32}) {
      SCOPED_TRACE(way.name + (dtype == DType::f64 ? ", f64" : ", f32"));
      GoldenRun run(model, way.plan, dtype);
      StepOptions options;
      options.update = false;
      const double tolerance = dtype == DType::f64 ? 1e-10 : 1e-5;
      EXPECT_NEAR(run.executor->step(run.iteration, options).loss, model.loss, tolerance * model.loss);
      expect_gradients(model, *run.executor, tolerance);
    }
  }
}

/// Runs the golden AdamW steps: clipping at norm 1, decay of matrices.
TEST_P(GoldenModels, LossesOfAdamWAreTheLibrarysUnderEveryPlan) {
  const GoldenModel model = testing::read_golden_model(GetParam());
  for (Way way : ways(model.spec)) {
    for (const bool shards : {false, true}) {
      SCOPED_TRACE(way.name + (shards ? ", ZeRO-1" : ""));
      way.plan.clip_gradients = true;
      way.plan.zero1 = shards;
      GoldenRun run(model, way.plan, DType::f64);
      StepOptions options;
      options.optimizer.beta2 = 0.95;
      options.optimizer.weight_decay = 0.1;
      for (std::size_t step = 0; step < model.losses.size(); ++step) {
        options.update = step < model.rates.size();
        if (options.update) options.optimizer.learning_rate = model.rates[step];
        options.optimizer.step = static_cast<std::int64_t>(step) + 1;
        const LiveResult result = run.executor->step(run.iteration, options);
        EXPECT_NEAR(result.loss, model.losses[step], 1e-5 * model.losses[step]) << step;
        if (options.update) {
          EXPECT_NEAR(result.gradient_norm.value_or(0), model.gradient_norms[step],
                      1e-5 * model.gradient_norms[step]);
        }
      }
    }
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
