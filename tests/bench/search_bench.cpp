// The joint planner on 32 and on 1,024 GPUs, and only its bounds.
#include <benchmark/benchmark.h>

#include "experiments/studies/batches.hpp"
#include "experiments/studies/data.hpp"
#include "experiments/studies/planning.hpp"
#include "experiments/studies/target.hpp"
#include "solver/planners/search/bound.hpp"

namespace dflop {
namespace search_bench {

constexpr int kGbs = 1024;
constexpr std::uint64_t kSeed = 1;

/// A model on nodes of eight, with global batches of vision_mix.
struct Case {
  Target target;
  std::vector<Sample> samples;
  std::vector<Batch> batches;

  explicit Case(std::int64_t nodes)
      : target("llava-ov-llama3-8b", "a100-80g-vtrain:" + std::to_string(nodes)) {
    PreprocessOptions options;
    options.rule = target.model.preprocess;
    options.max_tokens = target.model.max_tokens;
    samples = load_samples(DFLOP_SOURCE_DIR "/traces/datasets/vision_mix.csv", options);
    batches = make_batches(samples, kGbs, 8, kSeed);
  }
};

/// Argument: nodes. Counters: the proven gap in percent and the simulated seconds of the plan.
void plan_search(benchmark::State& state) {
  const Case c(state.range(0));
  for (auto _ : state) {
    const PlanResult result = make_plan("search", {c.target, c.samples, c.batches, kGbs, kSeed});
    state.counters["gap_percent"] = 100 * result.gap();
    state.counters["objective_s"] = result.objective.count();
  }
}

/// One bound, for plans with one stage of each kind.
void plan_bound(benchmark::State& state) {
  const Case c(4);
  const PlanRequest request{
      c.target.problem(), c.target.executor, kGbs, c.samples, c.batches, kSeed, {}, {}, {}};
  const SearchBounds bounds(request);
  Plan plan;
  plan.gbs = kGbs;
  plan.encoder = {1, 1, 8, {c.target.model.encoder.layers}};
  plan.llm = {2, 4, 3, split_layers(c.target.model.llm.layers, 4)};
  plan.microbatches = 32;
  for (auto _ : state) benchmark::DoNotOptimize(bounds.plan_floor(plan));
}

BENCHMARK(plan_search)->Arg(4)->Arg(128)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(plan_bound)->Unit(benchmark::kMicrosecond);

}  // namespace search_bench
}  // namespace dflop
