// The data-aware planner on 32, 256 and 1,024 GPUs, beside the published algorithm: every configuration at
// the mean item, with a throughput of each module that does not depend on shapes.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <limits>

#include "experiments/studies/study.hpp"
#include "solver/planners/dflop/module_durations.hpp"
#include "solver/planners/dflop/planner.hpp"

namespace dflop {
namespace planner_bench {

constexpr std::uint64_t kSeed = 1;

/// What `dflop plan` hands its planner.
struct Study {
  Target target;
  std::vector<Sample> samples;
  std::vector<Batch> batches;
  PlanRequest request;

  Study(std::int64_t nodes, int gbs)
      : target("llava-ov-llama3-8b", "a100-80g:" + std::to_string(nodes)),
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
void plan_dflop(benchmark::State& state) {
  const Study study(state.range(0), static_cast<int>(state.range(1)));
  PlanResult result;
  for (auto _ : state) result = DflopPlanner().plan(study.request);
  state.counters["configurations"] = static_cast<double>(result.candidates);
  state.counters["objective_s"] = result.objective.count();
}

/// Seconds of the whole global batch of mean items on one pipeline, per kind of pipeline.
std::vector<double> seconds_of_batch(const PlanRequest& request, const ModuleChoices& choices,
                                     bool is_encoder) {
  Workload batch;
  const auto items = static_cast<std::int64_t>(request.profile.size());
  for (const Sample& item : request.profile) batch += is_encoder ? item.encoder() : item.llm();
  batch = share_of_batch(batch, request.gbs, items);
  std::vector<double> seconds;
  for (const std::vector<Stage>& stages : choices.kinds) {
    const Work work = is_encoder ? Work{batch, {}} : Work{{}, batch};
    seconds.push_back(slowest_stage(request.cost, stages, work).count());
  }
  return seconds;
}

/// The smallest T of all configurations.
double enumerate(const PlanRequest& request, std::int64_t& configurations) {
  const ModuleChoices encoders = module_choices(request, Module::encoder);
  const ModuleChoices llms = module_choices(request, Module::llm);
  const std::vector<double> encoder_s = seconds_of_batch(request, encoders, true);
  const std::vector<double> llm_s = seconds_of_batch(request, llms, false);
  std::vector<std::vector<ModuleChoice>> llm_of_ranks(request.cluster.gpus());
  for (const ModuleChoice& llm : llms.choices) llm_of_ranks[llm.ranks].push_back(llm);
  double best = std::numeric_limits<double>::infinity();
  for (const ModuleChoice& e : encoders.choices) {
    const ModulePipeline& e_pipeline = encoders.pipelines[e.pipeline];
    for (const ModuleChoice& l : llm_of_ranks[request.cluster.gpus() - e.ranks]) {
      const ModulePipeline& l_pipeline = llms.pipelines[l.pipeline];
      const double slower = std::max(encoder_s[e_pipeline.kind] / e.dp, llm_s[l_pipeline.kind] / l.dp);
      for (int m = 1; m <= request.gbs / l.dp; ++m, ++configurations) {
        best = std::min(best, (m + e_pipeline.pp + l_pipeline.pp - 1) * slower / m);
      }
    }
  }
  return best;
}

void plan_published(benchmark::State& state) {
  const Study study(state.range(0), static_cast<int>(state.range(1)));
  std::int64_t configurations = 0;
  double best = 0;
  for (auto _ : state) {
    configurations = 0;
    best = enumerate(study.request, configurations);
  }
  state.counters["configurations"] = static_cast<double>(configurations);
  state.counters["objective_s"] = best;
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->Args({4, 1024})->Args({32, 1024})->Args({128, 1024})->Args({128, 2048});
  bench->ArgNames({"nodes", "gbs"})->Unit(benchmark::kMillisecond)->UseRealTime();
}

BENCHMARK(plan_dflop)->Apply(sizes);
BENCHMARK(plan_published)->Apply(sizes);

}  // namespace planner_bench
}  // namespace dflop
