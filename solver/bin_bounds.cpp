#include "solver/bin_bounds.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace dflop {

double work_bound(const LoadPipeline& pipeline, const Features& features) {
  // Of each load its mean over microbatches and, where each bin has its own, over dp ranks: a rank runs each
  // stage for every microbatch, so its work is linear in the sum.
  std::vector<double> mean;
  for (const Load& load : pipeline.loads) {
    double sum = 0;
    for (std::size_t f = 0; f < load.mix.size(); ++f)
      sum += load.mix[f] * std::accumulate(features[f].begin(), features[f].end(), 0.0);
    mean.push_back(sum / (pipeline.microbatches * (load.of_microbatch ? 1 : pipeline.dp)));
  }
  std::vector<double> work = pipeline.tail_s;
  for (const LoadStep& step : pipeline.steps) work[step.rank] += step.duration.at(mean[step.duration.load]);
  return work.empty() ? 0.0 : *std::max_element(work.begin(), work.end());
}

}  // namespace dflop
