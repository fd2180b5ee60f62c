// The search for the smallest makespan on vision_mix: makespans a second, proven gaps, and what other methods
// leave.
#include <benchmark/benchmark.h>

#include <chrono>
#include <string>
#include <vector>

#include "core/random.hpp"
#include "experiments/study.hpp"
#include "solver/assignment_solvers.hpp"
#include "solver/makespan_bound.hpp"
#include "solver/makespan_kernel.hpp"

namespace dflop {
namespace {

/// LLaVA-OneVision's samples: encoder time in proportion to tiles, LLM time to s + s^2 / 57220 for s tokens.
const std::vector<Sample>& vision_mix() {
  static const std::vector<Sample> samples = [] {
    PreprocessOptions options;
    options.rule = "llava-ov";
    options.max_tokens = 16384;
    return load_samples(DFLOP_SOURCE_DIR "/traces/datasets/vision_mix.csv", options);
  }();
  return samples;
}

/// Arguments of the bench: items, ranks, microbatches, dp, encoder load over LLM load per stage in percent,
/// schedule, encoder dp (0: each dp rank its own encoder). A quarter of the stages encode.
struct Case {
  LoadPipeline pipeline;
  std::vector<double> encoder_s;
  std::vector<double> llm_s;
  AssignmentProblem problem;

  explicit Case(const benchmark::State& state) {
    const int ranks = static_cast<int>(state.range(1));
    const int encoders = ranks / 4;
    const int dp = static_cast<int>(state.range(3));
    const int encoder_dp = static_cast<int>(state.range(6));
    PipelineShape shape{static_cast<PipelineSchedule>(state.range(5)), ranks, 1,
                        static_cast<int>(state.range(2))};
    if (shape.kind == PipelineSchedule::interleaved) {  // two chunks of the LLM on its ranks
      shape.ranks -= encoders;
      shape.chunks = 2;
      shape.leading = encoders;
      shape.microbatches = (shape.microbatches + shape.ranks - 1) / shape.ranks * shape.ranks;
    }
    const int microbatches = shape.microbatches;
    pipeline = simple_load_pipeline(shape, encoders, dp, encoder_dp, 2.0);
    Random random(1);
    double tiles = 0;
    double llm = 0;
    for (std::int64_t i = 0; i < state.range(0); ++i) {
      const Sample& sample = vision_mix()[random.below(vision_mix().size())];
      const auto tokens = static_cast<double>(sample.llm_tokens);
      encoder_s.push_back(static_cast<double>(sample.encoder().sequences));
      llm_s.push_back(tokens + tokens * tokens / 57220);
      tiles += encoder_s.back();
      llm += llm_s.back();
    }
    // A shared encoder has the work of dp bins on encoder_dp ranks.
    const double share = encoder_dp > 0 ? static_cast<double>(encoder_dp) / dp : 1.0;
    for (double& e : encoder_s) e *= static_cast<double>(state.range(4)) / 100 * llm / tiles * share;
    BinProblem bins{encoder_s, llm_s, microbatches * dp, dp, encoder_dp > 0};
    problem = {bins, &pipeline, {encoder_s, llm_s}};
  }
  Case(const Case&) = delete;
};

/// One thread's evaluations of candidates, 16 at a time.
void makespan_lanes(benchmark::State& state) {
  const PipelineShape shape{PipelineSchedule::one_f_one_b, static_cast<int>(state.range(0)), 1,
                            static_cast<int>(state.range(1))};
  const MakespanKernel kernel(simple_load_pipeline(shape, shape.ranks / 4, 1, 0, 2.0));
  MakespanLanes lanes(kernel);
  Random random(1);
  std::vector<double> values(kernel.columns());
  for (double& value : values) value = random.uniform();
  lanes.set(values);
  const double smoothing_s = static_cast<double>(state.range(2));
  for (auto _ : state) benchmark::DoNotOptimize(lanes.evaluate(smoothing_s));
  state.SetItemsProcessed(state.iterations() * Lanes::count);
}

/// The same one by one, with all steps and no gradient.
void makespan_plain(benchmark::State& state) {
  const PipelineShape shape{PipelineSchedule::one_f_one_b, static_cast<int>(state.range(0)), 1,
                            static_cast<int>(state.range(1))};
  const LoadPipeline pipeline = simple_load_pipeline(shape, shape.ranks / 4, 1, 0, 2.0);
  const LoadTable loads(2, std::vector<double>(shape.microbatches, 1.0));
  for (auto _ : state) benchmark::DoNotOptimize(makespan(pipeline, loads));
  state.SetItemsProcessed(state.iterations());
}

/// Counters: gaps to the bound after 10 and 100 ms, and the makespan of other methods over that after 100 ms.
void makespan_gap(benchmark::State& state) {
  const Case data(state);
  MakespanBounds bounds(data.pipeline);
  bounds.prepare(data.problem.features);
  AssignmentProblem problem = data.problem;
  problem.bounds = &bounds;
  const auto solve = [&](std::string_view name, double seconds) {
    SolveLimits limits;
    limits.time = Seconds(seconds);
    return make_assignment_solver(name)->solve(problem, limits);
  };
  AssignmentSolution best;
  for (auto _ : state) best = solve("makespan", 0.1);
  state.counters["gap_100ms"] = best.gap();
  state.counters["gap_10ms"] = solve("makespan", 0.01).gap();
  state.counters["auto_10ms"] = solve("auto", 0.01).gap();
  for (const char* name : {"random", "lpt", "local-search"}) {
    state.counters[name] = solve(name, 0.1).objective_s / best.objective_s;
  }
}

BENCHMARK(makespan_lanes)->ArgsProduct({{4}, {8}, {0, 1}})->ArgsProduct({{8, 16}, {16}, {0, 1}});
BENCHMARK(makespan_plain)->Args({4, 8})->Args({8, 16})->Args({16, 16});

constexpr auto k1f1b = static_cast<std::int64_t>(PipelineSchedule::one_f_one_b);
BENCHMARK(makespan_gap)
    ->ArgsProduct({{512, 2048}, {4, 8, 16}, {16}, {1, 4}, {30, 70, 100}, {k1f1b}, {0}})
    ->ArgsProduct({{2048}, {8, 16}, {32}, {4}, {30, 70, 100}, {k1f1b}, {0}})
    ->ArgsProduct({{1024}, {8}, {16}, {4}, {70, 100}, benchmark::CreateDenseRange(0, 4, 1), {0, 4}})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace dflop
