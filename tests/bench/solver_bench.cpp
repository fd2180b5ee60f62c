// Assignment solvers on vision_mix, LLaVA-OV on Llama 3 8B: the proven gap within a time limit, compared with
// other methods in one run. Counters are percentages, means over batches; "above" is relative to the same
// bound.
#include <benchmark/benchmark.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "core/support/clock.hpp"
#include "core/support/random.hpp"
#include "costmodel/sample_costs.hpp"
#include "experiments/studies/batches.hpp"
#include "experiments/studies/data.hpp"
#include "experiments/studies/target.hpp"
#include "solver/bins/heuristics.hpp"
#include "solver/schedulers/methods.hpp"

namespace dflop {
namespace solver_bench {

constexpr int kBatches = 8;
constexpr int kDp = 4;

/// A batch of vision_mix as items of a partition problem.
struct Items {
  SampleCosts costs;
  std::vector<double> tokens;

  BinProblem problem(int bins, bool shared) const {
    return {costs.encoder_s, costs.llm_s, bins, kDp, shared};
  }
};

/// Four LLM replicas of 8 GPUs and an encoder on 4 ranks.
std::vector<Items> vision_mix(int gbs, int microbatches) {
  static const Target target("llava-ov-llama3-8b", "a100-80g-vtrain:5");
  static const std::vector<Sample> samples = [] {
    PreprocessOptions options;
    options.rule = target.model.preprocess;
    options.max_tokens = target.model.max_tokens;
    return load_samples(DFLOP_SOURCE_DIR "/traces/datasets/vision_mix.csv", options);
  }();
  Plan plan;
  plan.gbs = gbs;
  plan.encoder = {1, 1, 4, {target.model.encoder.layers}};
  plan.llm = {4, 2, kDp, split_layers(target.model.llm.layers, 2)};
  plan.microbatches = microbatches;
  std::vector<Items> batches;
  for (const Batch& batch : make_batches(samples, gbs, kBatches, 1)) {
    Items& items = batches.emplace_back();
    items.costs = sample_costs(target.cost, plan, target.model, batch);
    for (const Sample& sample : batch) items.tokens.push_back(static_cast<double>(sample.llm_tokens));
  }
  return batches;
}

/// Arguments: items, items per bin, whether the encoder is shared, whether tokens are capped at 1.05 x their
/// mean.
struct Setting {
  int bins;
  bool shared;
  bool capped;
  std::vector<Items> batches;

  explicit Setting(const benchmark::State& state)
      : bins(static_cast<int>(state.range(0) / state.range(1))),
        shared(state.range(2) != 0),
        capped(state.range(3) != 0),
        batches(vision_mix(static_cast<int>(state.range(0)), bins / kDp)) {}

  /// Mean over batches of (objective - bound) / bound, in percent.
  double gap(std::string_view method, double seconds, double* worst = nullptr) const {
    const Method& solver = find_method(method);
    double sum = 0;
    double most = 0;
    for (const Items& items : batches) {
      AssignmentProblem problem{items.problem(bins, shared)};
      if (capped) {
        const double mean = std::accumulate(items.tokens.begin(), items.tokens.end(), 0.0) / bins;
        problem.bins.caps = {{"LLM tokens", items.tokens, std::floor(1.05 * mean)}};
      }
      SolveLimits limits;
      limits.time = Seconds(seconds);
      const double found = 100 * solver.solve(problem, limits).gap();
      sum += found;
      most = std::max(most, found);
    }
    if (worst != nullptr) *worst = most;
    return sum / static_cast<double>(batches.size());
  }

  /// The encoder's load relative to the LLM's, in percent, and the largest step of the encoder's load: one
  /// tile.
  double encoder_share() const {
    const SampleCosts& costs = batches[0].costs;
    return 100 * std::accumulate(costs.encoder_s.begin(), costs.encoder_s.end(), 0.0) /
           std::accumulate(costs.llm_s.begin(), costs.llm_s.end(), 0.0);
  }
};

void partition(benchmark::State& state) {
  const Setting setting(state);
  for (auto _ : state) {
    for (const int ms : {1, 10, 100}) {
      double worst = 0;
      state.counters["ls_" + std::to_string(ms) + "ms"] = setting.gap("local-search", 1e-3 * ms, &worst);
      state.counters["ls_" + std::to_string(ms) + "ms_worst"] = worst;
    }
    for (const char* other : {"random", "lpt", "karmarkar-karp", "ilp"}) {
      state.counters[other] = setting.capped ? 0 : setting.gap(other, 0.1);
    }
    state.counters["encoder"] = setting.encoder_share();
  }
}

void settings(benchmark::internal::Benchmark* bench) {
  for (const int items : {512, 1024, 2048}) {
    for (const int per_bin : {8, 16, 32}) {
      for (const int shared : {0, 1}) bench->Args({items, per_bin, shared, 0});
    }
    bench->Args({items, 16, 1, 1});
  }
}

BENCHMARK(partition)->Apply(settings)->Iterations(1)->Unit(benchmark::kMillisecond);

/// The integer program without limits, compared with the local search from which it starts and with LPT, at
/// sizes at which an integer programming solver by itself finds nothing for ten seconds. Arguments: items,
/// bins.
void integer_program(benchmark::State& state) {
  const int bins = static_cast<int>(state.range(1));
  const std::vector<Items> batches = vision_mix(static_cast<int>(state.range(0)), bins / kDp);
  for (auto _ : state) {
    for (const char* name : {"ilp", "local-search", "lpt"}) {
      const Stopwatch watch;
      double gap = 0;
      for (const Items& items : batches) {
        const AssignmentProblem problem{{items.costs.encoder_s, items.costs.llm_s, bins}};
        gap += 100 * find_method(name).solve(problem, {}).gap() / kBatches;
      }
      state.counters[name] = gap;
      state.counters[std::string(name) + "_ms"] = 1e3 * watch.elapsed().count() / kBatches;
    }
  }
}

BENCHMARK(integer_program)
    ->Args({512, 51})
    ->Args({512, 72})
    ->Args({512, 120})
    ->Args({1024, 144})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

/// Only two-dimensional LPT. Argument: items of log-uniform size, into 48 bins.
void lpt_bins(benchmark::State& state) {
  Random random(1);
  std::vector<double> encoder_s(state.range(0));
  std::vector<double> llm_s(state.range(0));
  for (std::size_t i = 0; i < llm_s.size(); ++i) {
    encoder_s[i] = std::pow(100.0, random.uniform());
    llm_s[i] = std::pow(100.0, random.uniform());
  }
  const BinProblem problem{encoder_s, llm_s, 48};
  for (auto _ : state) benchmark::DoNotOptimize(lpt(problem));
  state.SetComplexityN(state.range(0));
}

BENCHMARK(lpt_bins)->RangeMultiplier(2)->Range(512, 4096)->Unit(benchmark::kMicrosecond)->Complexity();

}  // namespace solver_bench
}  // namespace dflop
