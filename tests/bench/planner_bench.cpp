// The data-aware planners on 32, 256 and 1,024 GPUs: both readings of the published optimizer, and dflop's
// own.
#include <benchmark/benchmark.h>

#include "experiments/studies/batches.hpp"
#include "experiments/studies/data.hpp"
#include "experiments/studies/target.hpp"
#include "solver/planners/planners.hpp"

namespace dflop {
namespace planner_bench {

constexpr std::uint64_t kSeed = 1;

/// The inputs that `dflop plan` gives its planner.
struct Study {
  Target target;
  std::vector<Sample> samples;
  std::vector<Batch> batches;
  PlanRequest request;

  Study(std::int64_t nodes, int gbs)
      : target("llava-ov-llama3-8b", "a100-80g-vtrain:" + std::to_string(nodes)),
        samples(load_samples(DFLOP_SOURCE_DIR "/traces/datasets/vision_mix.csv", options())),
        batches(make_batches(samples, gbs, 8, kSeed)),
        request{target.problem(), target.executor, gbs, samples, batches, kSeed, {}, {}} {}

 private:
  PreprocessOptions options() const {
    PreprocessOptions options;
    options.rule = target.model.preprocess;
    options.max_tokens = target.model.max_tokens;
    return options;
  }
};

/// Arguments: nodes of 8 GPUs, gbs.
void plan_by(benchmark::State& state, const char* planner) {
  const Study study(state.range(0), static_cast<int>(state.range(1)));
  PlanResult result;
  for (auto _ : state) result = find_planner(planner).make()->plan(study.request);
  state.counters["configurations"] = static_cast<double>(result.candidates);
  state.counters["objective_s"] = result.objective.count();
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->Args({4, 1024})->Args({32, 1024})->Args({128, 1024})->Args({128, 2048});
  bench->ArgNames({"nodes", "gbs"})->Unit(benchmark::kMillisecond)->UseRealTime();
}

BENCHMARK_CAPTURE(plan_by, dflop, "dflop")->Apply(sizes);
BENCHMARK_CAPTURE(plan_by, dflop_paper, "dflop-paper")->Apply(sizes);
BENCHMARK_CAPTURE(plan_by, dflop_expected, "dflop-expected")->Apply(sizes);

}  // namespace planner_bench
}  // namespace dflop
