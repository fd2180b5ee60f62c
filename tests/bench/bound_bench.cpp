// Bounds on the makespan: the first solution of the linear program, its reuse for other batches, and
// pipelines made from plans, compared with the simulation.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/program/lowering.hpp"
#include "core/support/random.hpp"
#include "experiments/presets/presets.hpp"
#include "experiments/studies/batches.hpp"
#include "experiments/studies/data.hpp"
#include "experiments/studies/planning.hpp"
#include "experiments/studies/target.hpp"
#include "sim/engine.hpp"
#include "solver/makespan/bound.hpp"
#include "solver/plan_problem/pipeline.hpp"
#include "solver/schedulers/schedulers.hpp"

namespace dflop {
namespace bound_bench {

constexpr std::uint64_t kSeed = 1;

/// Encoder and LLM seconds of items with heavy-tailed sizes, a fifth of them text.
struct HeavyItems {
  std::vector<double> encoder_s;
  std::vector<double> llm_s;

  explicit HeavyItems(int count, std::uint64_t seed) {
    Random random(seed);
    for (int i = 0; i < count; ++i) {
      const double size = std::exp(2 * (random.uniform() + random.uniform() + random.uniform() - 1.5));
      encoder_s.push_back(random.below(5) == 0 ? 0.0 : 0.7 * size);
      llm_s.push_back(0.4 * encoder_s.back() + std::exp(2 * random.uniform()));
    }
  }
  Features features() const { return {encoder_s, llm_s}; }
};

LoadPipeline bench_pipeline(const benchmark::State& state) {
  const int ranks = static_cast<int>(state.range(0));
  const int dp = static_cast<int>(state.range(2));
  return simple_load_pipeline({OrderKind::one_f_one_b, ranks, 1, static_cast<int>(state.range(1))}, ranks / 4,
                              dp, dp, 2.0);
}

/// Arguments: pipeline ranks, microbatches, dp.
void makespan_program(benchmark::State& state) {
  const HeavyItems items(1024, kSeed);
  const LoadPipeline pipeline = bench_pipeline(state);
  for (auto _ : state) {
    MakespanBounds bounds(pipeline);
    bounds.prepare(items.features());
    benchmark::DoNotOptimize(bounds.bound(items.features()).seconds);
  }
}

/// The same arguments, with the duals of one batch reused for another. `part`: fraction of the bound from the
/// batch's own duals.
void makespan_bound_again(benchmark::State& state) {
  const HeavyItems first(1024, kSeed);
  const HeavyItems second(1024, kSeed + 1);
  MakespanBounds bounds(bench_pipeline(state));
  const double simple_s = bounds.bound(second.features()).seconds;
  bounds.prepare(first.features());
  double bound_s = 0;
  for (auto _ : state) benchmark::DoNotOptimize(bound_s = bounds.bound(second.features()).seconds);
  MakespanBounds own(bounds.pipeline());
  own.prepare(second.features());
  state.counters["part"] = bound_s / own.bound(second.features()).seconds;
  state.counters["over_simple"] = bound_s / simple_s;
}

void bound_sizes(benchmark::internal::Benchmark* bench) {
  for (const auto& [ranks, microbatches, dp] :
       {std::array{4, 16, 1}, {8, 16, 1}, {8, 32, 4}, {16, 32, 4}, {16, 64, 4}}) {
    bench->Args({ranks, microbatches, dp});
  }
  bench->ArgNames({"p", "M", "dp"});
}

/// Argument: number of the model preset. Uses its pipeline under the dflop plan for 64 GPUs on real batches
/// of 512. `error_mean`, `error_max`: |makespan of the pipeline - simulated| / simulated over LPT and random
/// assignments; `bound`: mean fraction of the simulated makespan of LPT; `simple` likewise.
void plan_pipeline_of_preset(benchmark::State& state) {
  const std::string name = preset_names("models")[static_cast<std::size_t>(state.range(0))];
  const Target target(name, "a100-80g-vtrain:8");
  const bool audio = name.find("audio") != std::string::npos;
  PreprocessOptions options;
  options.rule = target.model.preprocess;
  options.max_tokens = target.model.max_tokens;
  const std::string data = audio ? "omni_mix.csv" : "vision_mix.csv";
  if (audio) options.modalities = {Modality::text, Modality::audio};
  const auto samples = load_samples(std::string(DFLOP_SOURCE_DIR) + "/traces/datasets/" + data, options);
  const auto batches = make_batches(samples, 512, 4, kSeed);
  const PlanResult found = make_plan("dflop-expected", {target, samples, batches, 512, kSeed});
  if (!found.plan) {
    state.SkipWithError("no feasible plan");
    return;
  }
  const Plan& plan = *found.plan;
  for (auto _ : state) {
    benchmark::DoNotOptimize(plan_pipeline(plan, target.model, target.cost, batches[0]));
  }
  const auto lpt = make_scheduler("lpt");
  double sum = 0;
  double most = 0;
  double bound = 0;
  double simple = 0;
  for (std::size_t k = 0; k < batches.size(); ++k) {
    const PlanPipeline pipeline = plan_pipeline(plan, target.model, target.cost, batches[k]);
    MakespanBounds bounds(pipeline.floor, pipeline.bound);
    const double simple_s = bounds.bound(pipeline.features()).seconds;
    bounds.prepare(pipeline.features());
    for (const bool random : {false, true}) {
      const Assignment assignment =
          random ? random_assignment(batches[k].size(), plan, kSeed, k)
                 : lpt->schedule({batches[k], plan, target.model, target.cost, kSeed, k}).assignment;
      const Program program = lower(plan, target.model, batches[k], assignment);
      const Timeline timeline = simulate(program, target.cost.price(program), Detail::usage);
      const double simulated = Seconds(timeline.makespan).count();
      const LoadTable loads = load_table(pipeline.pipeline, pipeline.features(), assignment.bin);
      const double error = std::abs(makespan(pipeline.pipeline, loads) - simulated) / simulated;
      sum += error;
      most = std::max(most, error);
      if (random) continue;
      bound += bounds.bound(pipeline.features()).seconds / simulated;
      simple += simple_s / simulated;
    }
  }
  const auto count = static_cast<double>(batches.size());
  state.SetLabel(name + " " + describe(plan));
  state.counters["error_mean"] = sum / (2 * count);
  state.counters["error_max"] = most;
  state.counters["bound"] = bound / count;
  state.counters["simple"] = simple / count;
}

BENCHMARK(makespan_program)->Apply(bound_sizes)->Unit(benchmark::kMillisecond);
BENCHMARK(makespan_bound_again)->Apply(bound_sizes)->Unit(benchmark::kMicrosecond);
BENCHMARK(plan_pipeline_of_preset)
    ->DenseRange(0, static_cast<std::int64_t>(preset_names("models").size()) - 1)
    ->Unit(benchmark::kMicrosecond);

}  // namespace bound_bench
}  // namespace dflop
