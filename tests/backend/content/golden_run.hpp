// Runs golden models under plans.
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

/// A GoldenWay is one way to run a model: a plan with a name.
struct GoldenWay {
  std::string name;
  Plan plan;
};

/// Returns ways that cover all kinds of parallelism, recomputation and order.
std::vector<GoldenWay> golden_ways(const ModelSpec& model);

/// A GoldenRun runs a golden model under a plan.
struct GoldenRun {
  /// Without `weights`, uses the weights of the model's folder.
  GoldenRun(const GoldenModel& of, const Plan& p, DType dtype, const WeightSource* weights = nullptr,
            int row_alignment = 1);

  /// Runs golden AdamW step `step`, counted from 0. One after the last step, it only computes the final loss.
  LiveResult adamw_step(const GoldenModel& of, std::size_t step) const;

  ModelSpec model;
  Plan plan;
  Iteration iteration;
  std::unique_ptr<World> world;
  std::unique_ptr<LiveExecutor> executor;
};

/// Returns how many golden AdamW steps tests run: all or, with sanitizers, two, as the second depends on the
/// changes of the first.
inline std::size_t golden_steps(const GoldenModel& model) {
  return kSanitized ? 2 : model.losses.size();
}

/// A GradientDistance is the distance of one tensor's gradient from the golden one.
struct GradientDistance {
  std::string name;
  double largest = 0;  ///< max difference / largest golden value
  double norm = 0;     ///< norm of the difference / golden norm
};

/// Returns the distances of all tensors. Gradients that are zero except for rounding are compared with a
/// millionth of the norm of all gradients.
std::vector<GradientDistance> gradient_distances(const GoldenModel& model, LiveExecutor& executor);

}  // namespace dflop::testing
