// Golden models at work under plans.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/host/world.hpp"
#include "backend/model/weight_source.hpp"
#include "backend/run/live_executor.hpp"
#include "tests/backend/content/golden_model.hpp"
#include "tests/rounds.hpp"

namespace dflop::testing {

/// A GoldenWay is one to run a model.
struct GoldenWay {
  std::string name;
  Plan plan;
};

/// Returns ways that differ in every kind of parallelism, recomputation and order.
std::vector<GoldenWay> golden_ways(const ModelSpec& model);

/// A GoldenRun is a golden model at work under a plan.
struct GoldenRun {
  /// Weights are those of the model's folder where none are given.
  GoldenRun(const GoldenModel& of, const Plan& p, DType dtype, const WeightSource* weights = nullptr,
            int row_alignment = 1);

  /// Runs a golden step of AdamW, from 0 on; the one behind the last gives the loss after it alone.
  LiveResult adamw_step(const GoldenModel& of, std::size_t step) const;

  ModelSpec model;
  Plan plan;
  Iteration iteration;
  std::unique_ptr<World> world;
  std::unique_ptr<LiveExecutor> executor;
};

/// Returns how many golden steps of AdamW tests run: all, with sanitizers two, of which the second works on
/// what the first has changed.
inline std::size_t golden_steps(const GoldenModel& model) {
  return kSanitized ? 2 : model.losses.size();
}

/// A GradientDistance is how far the gradient of one tensor is from the golden one.
struct GradientDistance {
  std::string name;
  double largest = 0;  ///< difference, over the golden tensor's largest value
  double norm = 0;     ///< of the difference, over that of the golden tensor
};

/// Returns the distances of all tensors. What is zero but for rounding is measured by a millionth of the norm
/// of all gradients.
std::vector<GradientDistance> gradient_distances(const GoldenModel& model, LiveExecutor& executor);

}  // namespace dflop::testing
