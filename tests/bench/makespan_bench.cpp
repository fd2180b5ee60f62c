// The search for the smallest makespan on vision_mix: makespans per second, proven gaps, and comparisons with
// other methods.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "core/support/random.hpp"
#include "experiments/studies/data.hpp"
#include "experiments/studies/evaluation.hpp"
#include "solver/makespan/bound.hpp"
#include "solver/makespan/kernel.hpp"
#include "solver/schedulers/methods.hpp"

namespace dflop {
namespace makespan_bench {

/// LLaVA-OneVision's samples: encoder time proportional to tiles, LLM time proportional to s + s^2 / 57220
/// for s tokens.
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
/// schedule, encoder dp (0: each dp rank has its own encoder). A quarter of the stages encode.
struct Case {
  LoadPipeline pipeline;
  std::vector<double> encoder_s;
  std::vector<double> llm_s;
  std::vector<double> tokens;
  AssignmentProblem problem;

  explicit Case(const benchmark::State& state)
      : Case({state.range(0), state.range(1), state.range(2), state.range(3), state.range(4), state.range(5),
              state.range(6)}) {}

  explicit Case(const std::array<std::int64_t, 7>& arguments) {
    const int ranks = static_cast<int>(arguments[1]);
    const int encoders = ranks / 4;
    const int dp = static_cast<int>(arguments[3]);
    const int encoder_dp = static_cast<int>(arguments[6]);
    PipelineShape shape{static_cast<OrderKind>(arguments[5]), ranks, 1, static_cast<int>(arguments[2])};
    if (shape.kind == OrderKind::interleaved) {  // two LLM chunks on each of its ranks
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
    for (std::int64_t i = 0; i < arguments[0]; ++i) {
      const Sample& sample = vision_mix()[random.below(vision_mix().size())];
      const auto length = static_cast<double>(sample.llm_tokens);
      encoder_s.push_back(static_cast<double>(sample.encoder().sequences));
      llm_s.push_back(length + length * length / 57220);
      tokens.push_back(length);
      tiles += encoder_s.back();
      llm += llm_s.back();
    }
    // A shared encoder has the work of dp bins on encoder_dp ranks.
    const double share = encoder_dp > 0 ? static_cast<double>(encoder_dp) / dp : 1.0;
    for (double& e : encoder_s) e *= static_cast<double>(arguments[4]) / 100 * llm / tiles * share;
    BinProblem bins{encoder_s, llm_s, microbatches * dp, dp, encoder_dp > 0};
    problem = {bins, &pipeline, {encoder_s, llm_s}};
  }
  Case(const Case&) = delete;
};

/// Evaluations of candidates by one thread, 16 at a time.
void makespan_lanes(benchmark::State& state) {
  const PipelineShape shape{OrderKind::one_f_one_b, static_cast<int>(state.range(0)), 1,
                            static_cast<int>(state.range(1))};
  const MakespanKernel kernel(simple_load_pipeline(shape, shape.ranks / 4, 1, 0, 2.0));
  MakespanLanes lanes(kernel);
  Random random(1);
  std::vector<double> values(kernel.columns());
  for (double& value : values) value = random.uniform();
  lanes.set(values);
  const double smoothing_s = static_cast<double>(state.range(2));
  for (auto _ : state) benchmark::DoNotOptimize(lanes.evaluate(smoothing_s));
  state.SetItemsProcessed(state.iterations() * Lanes::kCount);
}

/// The same evaluations one by one, with all steps and no gradient.
void makespan_plain(benchmark::State& state) {
  const PipelineShape shape{OrderKind::one_f_one_b, static_cast<int>(state.range(0)), 1,
                            static_cast<int>(state.range(1))};
  const LoadPipeline pipeline = simple_load_pipeline(shape, shape.ranks / 4, 1, 0, 2.0);
  const LoadTable loads(2, std::vector<double>(shape.microbatches, 1.0));
  for (auto _ : state) benchmark::DoNotOptimize(makespan(pipeline, loads));
  state.SetItemsProcessed(state.iterations());
}

/// Counters: gaps to the bound after 10 and 100 ms, and the makespan of other methods over the makespan after
/// 100 ms.
void makespan_gap(benchmark::State& state) {
  const Case data(state);
  MakespanBounds bounds(data.pipeline);
  bounds.prepare(data.problem.features);
  AssignmentProblem problem = data.problem;
  problem.bounds = &bounds;
  const auto solve = [&](std::string_view name, double seconds) {
    SolveLimits limits;
    limits.time = Seconds(seconds);
    return find_method(name).solve(problem, limits);
  };
  AssignmentSolution best;
  for (auto _ : state) best = solve("makespan", 0.1);
  state.counters["gap_100ms"] = best.gap();
  state.counters["gap_10ms"] = solve("makespan", 0.01).gap();
  state.counters["auto_10ms"] = solve("auto", 0.01).gap();
  for (const char* name : {"random", "lpt", "local-search"}) {
    state.counters[name] = solve(name, 0.1).value.count() / best.value.count();
  }
}

/// Each method at its own best number of microbatches, where any `ranks` consecutive microbatches, the number
/// in flight, hold at most 1.1 times the tokens of that many sixteenths of the batch. Arguments: ranks,
/// encoder load in percent, fixed time of each pass in percent of a mean forward at 16 microbatches.
/// Counters: the best makespan of other methods over the makespan of the search, and the best numbers.
void makespan_own_count(benchmark::State& state) {
  constexpr double kSlack = 1.1;
  constexpr std::int64_t kReference = 16;
  constexpr std::int64_t kDp = 4;
  const std::int64_t ranks = state.range(0);
  constexpr std::array<const char*, 4> kNames{"makespan", "local-search", "lpt", "random"};
  std::array<double, kNames.size()> best;
  std::array<double, kNames.size()> count{};
  for (auto _ : state) {
    best.fill(std::numeric_limits<double>::infinity());
    for (const std::int64_t microbatches : {4, 8, 12, 16, 24, 32, 48, 64}) {
      Case data({512, ranks, microbatches, kDp, state.range(1),
                 static_cast<std::int64_t>(OrderKind::one_f_one_b), 0});
      const double llm = std::accumulate(data.llm_s.begin(), data.llm_s.end(), 0.0);
      for (LoadStep& step : data.pipeline.steps) {
        step.duration.fixed_s = static_cast<double>(state.range(2)) / 100 * llm / (kReference * kDp);
      }
      const double all_tokens = std::accumulate(data.tokens.begin(), data.tokens.end(), 0.0);
      const auto in_flight = static_cast<int>(std::min(ranks, microbatches));
      data.problem.bins.caps = {{"LLM tokens", data.tokens,
                                 kSlack * static_cast<double>(ranks) / (kReference * kDp) * all_tokens,
                                 in_flight}};
      for (std::size_t m = 0; m < kNames.size(); ++m) {
        SolveLimits limits;
        limits.time = Seconds(0.05);
        const AssignmentSolution found = find_method(kNames[m]).solve(data.problem, limits);
        if (found.status == ScheduleStatus::infeasible || found.value.count() >= best[m]) continue;
        best[m] = found.value.count();
        count[m] = static_cast<double>(microbatches);
      }
    }
  }
  for (std::size_t m = 0; m < kNames.size(); ++m) {
    state.counters[std::string("count_") + kNames[m]] = count[m];
    if (m > 0) state.counters[kNames[m]] = best[m] / best[0];
  }
}

BENCHMARK(makespan_lanes)->ArgsProduct({{4}, {8}, {0, 1}})->ArgsProduct({{8, 16}, {16}, {0, 1}});
BENCHMARK(makespan_plain)->Args({4, 8})->Args({8, 16})->Args({16, 16});

constexpr auto k1f1b = static_cast<std::int64_t>(OrderKind::one_f_one_b);
BENCHMARK(makespan_gap)
    ->ArgsProduct({{512, 2048}, {4, 8, 16}, {16}, {1, 4}, {30, 70, 100}, {k1f1b}, {0}})
    ->ArgsProduct({{2048}, {8, 16}, {32}, {4}, {30, 70, 100}, {k1f1b}, {0}})
    ->ArgsProduct({{1024}, {8}, {16}, {4}, {70, 100}, benchmark::CreateDenseRange(0, 4, 1), {0, 4}})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(makespan_own_count)
    ->ArgsProduct({{4, 8, 16}, {30, 70, 100}, {0, 5}})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace makespan_bench
}  // namespace dflop
