// Random pipelines and items, for every schedule whose order does not depend on loads.
#pragma once

#include <vector>

#include "core/support/random.hpp"
#include "solver/assignment_problem.hpp"
#include "tests/core/pipelines.hpp"

namespace dflop::testing {

/// Up to 4 ranks and 6 microbatches, and up to 3 dp ranks that may share the encoder, the first stage;
/// messages, fixed times and tails. Loads: encoder (per microbatch if it is shared), LLM, and both mixed.
inline LoadPipeline random_load_pipeline(Random& random) {
  const auto kind = draw_order(random, is_fixed_chain);
  PipelineShape shape{kind, 1 + static_cast<int>(random.below(3)), 1, 1 + static_cast<int>(random.below(6))};
  shape.leading = static_cast<int>(random.below(2));
  if (traits(kind).has_chunks()) shape.chunks = 1 + static_cast<int>(random.below(2));
  const int dp = 1 + static_cast<int>(random.below(3));
  const bool shared = shape.leading > 0 && random.below(2) == 0;
  std::vector<Load> loads = {{{1, 0}, shared}, {{0, 1}, false}, {{0.5, 0.25}, false}};
  std::vector<StageLoadTimes> stages(shape.stages());
  for (int s = 0; s < shape.stages(); ++s) {
    const auto time = [&](std::int32_t load) {
      return LoadTime{random.below(2) == 0 ? 0.0 : random.uniform(), random.uniform(), load};
    };
    const bool encodes = s < shape.leading;
    const auto compute = [&] { return time(encodes ? 0 : 1 + static_cast<std::int32_t>(random.below(2))); };
    stages[s] = {compute(), compute(), compute(), {}, {}, encodes && shared};
    if (random.below(2) == 0) {
      stages[s].message_forward = time(static_cast<std::int32_t>(random.below(3)));
      stages[s].message_backward = time(static_cast<std::int32_t>(random.below(3)));
    }
  }
  std::vector<double> tail_s(shape.all_ranks());
  for (double& tail : tail_s) tail = random.below(2) == 0 ? 0.0 : 3 * random.uniform();
  return make_load_pipeline({shape, pipeline_steps(shape)}, dp, std::move(loads), stages, std::move(tail_s));
}

/// The values of a group's columns, computed from the loads of all bins.
template <typename Kernel>
std::vector<double> group_values(const Kernel& kernel, const LoadPipeline& pipeline, const LoadTable& table,
                                 int group) {
  std::vector<double> values(kernel.columns());
  for (int b = 0; b < pipeline.bins(); ++b) {
    if (kernel.group(b) != group) continue;
    for (int l = 0; l < kernel.loads(); ++l) {
      values[kernel.column(l, b)] = table[l][pipeline.loads[l].of_microbatch ? b / pipeline.dp : b];
    }
  }
  return values;
}

}  // namespace dflop::testing
