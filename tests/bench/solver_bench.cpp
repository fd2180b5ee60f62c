// The two-dimensional LPT: up to 4,096 items of log-uniform size into 48 bins.
#include <benchmark/benchmark.h>

#include <cmath>
#include <vector>

#include "core/random.hpp"
#include "solver/lpt.hpp"

namespace dflop {
namespace {

/// Argument: items.
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

}  // namespace
}  // namespace dflop
