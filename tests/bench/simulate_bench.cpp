// The event engine on 1F1B pipelines: forward 10 ms, backward 20 ms, messages of 1 MB at 1 GB/s + 1 us.
#include <benchmark/benchmark.h>

#include "sim/engine.hpp"
#include "tests/sim/pipelines.hpp"
#include "tests/sim/reference.hpp"

namespace dflop {
namespace simulate_bench {

/// Arguments of every bench: stages, microbatches.
PricedProgram priced_pipeline(const benchmark::State& state) {
  testing::Pipeline pipeline;
  pipeline.stages = static_cast<int>(state.range(0));
  pipeline.microbatches = static_cast<int>(state.range(1));
  pipeline.message = Nanoseconds(1'001'000);
  return testing::make_pipeline(pipeline);
}

/// items_per_second counts instructions.
void simulate_pipeline(benchmark::State& state, Detail detail) {
  const PricedProgram priced = priced_pipeline(state);
  Seconds makespan{0};
  for (auto _ : state) {
    const Timeline timeline = simulate(priced.program, priced.costs, detail);
    makespan = timeline.makespan;
    benchmark::DoNotOptimize(makespan);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(priced.program.instructions.size()));
  state.counters["makespan_s"] = makespan.count();
}

/// Half of the stages are on the GPUs of the others, and together they ask for more bandwidth than there is.
/// Arguments: stages, microbatches; items_per_second counts instructions.
void simulate_shared(benchmark::State& state, bool contended) {
  PricedProgram priced = priced_pipeline(state);
  priced.program.shared_gpus = static_cast<std::int32_t>(state.range(0) / 2);
  for (const Instruction& instruction : priced.program.instructions) {
    const bool first_half = instruction.stage < priced.program.shared_gpus;
    const bool computes = is_compute(instruction.op) || instruction.op == Op::optimizer_step;
    priced.costs.bandwidth.push_back(computes && contended ? (first_half ? 0.5 : 0.8) : 0);
  }
  Seconds makespan{0};
  for (auto _ : state) {
    makespan = simulate(priced.program, priced.costs, Detail::usage).makespan;
    benchmark::DoNotOptimize(makespan);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(priced.program.instructions.size()));
  state.counters["makespan_s"] = makespan.count();
}

/// The same makespan and usage by longest paths in the graph of dependencies, as in the tests of the engine:
/// the cost of a plain graph algorithm, for comparison with the engine's time.
void longest_path_reference(benchmark::State& state) {
  const PricedProgram priced = priced_pipeline(state);
  Seconds makespan{0};
  for (auto _ : state) makespan = testing::make_reference(priced).makespan;
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(priced.program.instructions.size()));
  state.counters["makespan_s"] = makespan.count();
}

BENCHMARK(longest_path_reference)->Args({16, 512})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate_pipeline, usage, Detail::usage)
    ->Args({16, 512})
    ->Args({64, 4096})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate_shared, contended, true)
    ->Args({16, 512})
    ->Args({64, 4096})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate_shared, idle_memory, false)->Args({16, 512})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate_pipeline, spans, Detail::spans)
    ->Args({16, 512})
    ->Args({64, 4096})
    ->Unit(benchmark::kMillisecond);

}  // namespace simulate_bench
}  // namespace dflop
