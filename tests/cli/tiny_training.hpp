// For tests that run a TrainingLoop in their own worlds.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "experiments/studies/data.hpp"
#include "experiments/studies/target.hpp"
#include "tests/cli/run.hpp"

namespace dflop::testing {

/// Batches of 8 images for tiny-vlm, on two pipeline ranks in each of `dp` dp ranks.
struct TinyTraining : ::testing::Test {
  explicit TinyTraining(int dp) {
    write_all(sandbox.path("images.csv"), image_records(60));
    PreprocessOptions options;
    options.rule = target->model.preprocess;
    options.max_tokens = target->model.max_tokens;
    samples = std::make_shared<const std::vector<Sample>>(
        load_samples(sandbox.path("images.csv").string(), options, false, nullptr, {}));
    plan.model = "tiny-vlm";
    plan.cluster = "a100-80g:1";
    plan.layout = Layout::uniform;
    plan.gbs = 8;
    plan.encoder = {1, 2, dp, {target->model.encoder.layers, 0}};
    plan.llm = {1, 2, dp, {1, target->model.llm.layers - 1}};
    plan.microbatches = 2;
    plan.recomputation = Recomputation::none;
  }

  Sandbox sandbox;
  std::shared_ptr<const Target> target = std::make_shared<const Target>("tiny-vlm", "a100-80g:1");
  std::shared_ptr<const std::vector<Sample>> samples;
  Plan plan;
};

}  // namespace dflop::testing
