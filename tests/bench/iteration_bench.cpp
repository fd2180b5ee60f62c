// One iteration of a disaggregated plan on 32 GPUs, step by step, and the planner that finds such plans.
#include <benchmark/benchmark.h>

#include "core/program/lowering.hpp"
#include "experiments/studies/batches.hpp"
#include "experiments/studies/data.hpp"
#include "experiments/studies/planning.hpp"
#include "experiments/studies/target.hpp"
#include "sim/engine.hpp"
#include "solver/schedulers/schedulers.hpp"

namespace dflop {
namespace iteration_bench {

constexpr int kGbs = 512;
constexpr std::uint64_t kSeed = 1;

std::vector<Sample> load_vision_mix(const ModelSpec& model) {
  PreprocessOptions options;
  options.rule = model.preprocess;
  options.max_tokens = model.max_tokens;
  return load_samples(DFLOP_SOURCE_DIR "/traces/datasets/vision_mix.csv", options);
}

/// Encoder on 8 ranks, LLM on 24.
Plan make_32_gpu_plan(const Target& target) {
  Plan plan;
  plan.model = target.model.name;
  plan.cluster = target.cluster.name;
  plan.gbs = kGbs;
  plan.encoder = {1, 1, 8, {target.model.encoder.layers}};
  plan.llm = {4, 2, 3, split_layers(target.model.llm.layers, 2)};
  plan.microbatches = 16;
  validate(plan, target.model, target.cluster);
  return plan;
}

/// Setup shared by all benches here, made once.
struct Setup {
  Target target{"llava-ov-llama3-8b", "a100-80g-vtrain:4"};
  std::vector<Sample> samples = load_vision_mix(target.model);
  std::vector<Batch> batches = make_batches(samples, kGbs, 8, kSeed);
  Plan plan = make_32_gpu_plan(target);
  Assignment assignment =
      make_scheduler("lpt")->schedule({batches[0], plan, target.model, target.cost, kSeed, 0}).assignment;
  Program program = lower(plan, target.model, batches[0], assignment);

  static const Setup& get() {
    static const Setup setup;
    return setup;
  }
};

void lower_program(benchmark::State& state) {
  const Setup& it = Setup::get();
  for (auto _ : state) {
    benchmark::DoNotOptimize(lower(it.plan, it.target.model, it.batches[0], it.assignment));
  }
}

void verify_program(benchmark::State& state) {
  for (auto _ : state) verify(Setup::get().program);
}

void price_program(benchmark::State& state) {
  const Setup& it = Setup::get();
  for (auto _ : state) benchmark::DoNotOptimize(it.target.cost.price(it.program));
  const auto instructions = static_cast<std::int64_t>(it.program.instructions.size());
  state.SetItemsProcessed(state.iterations() * instructions);
}

void make_whole_iteration(benchmark::State& state) {
  const Setup& it = Setup::get();
  for (auto _ : state) {
    benchmark::DoNotOptimize(make_iteration(it.target.problem(), it.plan, it.batches[0], it.assignment));
  }
}

void simulate_program(benchmark::State& state) {
  const Setup& it = Setup::get();
  const ProgramCosts costs = it.target.cost.price(it.program);
  for (auto _ : state) benchmark::DoNotOptimize(simulate(it.program, costs, Detail::usage).makespan);
  const auto instructions = static_cast<std::int64_t>(it.program.instructions.size());
  state.SetItemsProcessed(state.iterations() * instructions);
}

void plan_32_gpus(benchmark::State& state) {
  const Setup& it = Setup::get();
  for (auto _ : state) {
    if (make_plan("dflop-expected", {it.target, it.samples, it.batches, kGbs, kSeed}).plan) continue;
    state.SkipWithError("no feasible plan");
    break;
  }
}

BENCHMARK(lower_program)->Unit(benchmark::kMillisecond);
BENCHMARK(verify_program)->Unit(benchmark::kMillisecond);
BENCHMARK(price_program)->Unit(benchmark::kMillisecond);
BENCHMARK(make_whole_iteration)->Unit(benchmark::kMillisecond);
BENCHMARK(simulate_program)->Unit(benchmark::kMillisecond);
BENCHMARK(plan_32_gpus)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace iteration_bench
}  // namespace dflop
