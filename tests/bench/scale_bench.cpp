// One iteration of clusters of 64 to 16,384 GPUs with contention on leaf switches, and a saturated bus.
#include <benchmark/benchmark.h>

#include <map>

#include "core/program/lowering.hpp"
#include "costmodel/analytic/analytic.hpp"
#include "experiments/presets/presets.hpp"
#include "experiments/studies/batches.hpp"
#include "experiments/studies/data.hpp"
#include "sim/engine.hpp"
#include "sim/network/network.hpp"
#include "tests/sim/pipelines.hpp"

namespace dflop {
namespace scale_bench {

constexpr int kTp = 4;
constexpr int kPp = 8;
constexpr int kMicrobatches = 64;

/// Uniform: tp 4, pp 8, the rest dp; one sample per microbatch and dp rank.
Plan plan_for(int gpus) {
  Plan plan;
  plan.layout = Layout::uniform;
  plan.encoder = {kTp, kPp, gpus / (kTp * kPp), {27, 0, 0, 0, 0, 0, 0, 0}};
  plan.llm = {kTp, kPp, gpus / (kTp * kPp), {0, 5, 5, 5, 5, 4, 4, 4}};
  plan.microbatches = kMicrobatches;
  plan.gbs = kMicrobatches * plan.llm.dp;
  plan.gradient_bucket = Bytes{100'000'000};
  return plan;
}

struct Iteration {
  ClusterSpec cluster;
  Program program;
};

const Iteration& iteration_of(int gpus) {
  static std::map<int, Iteration> made;
  const auto [place, is_new] = made.try_emplace(gpus);
  if (!is_new) return place->second;
  Iteration& iteration = place->second;
  const ModelSpec model = find_model("llava-ov-llama3-8b");
  iteration.cluster = find_cluster("a100-80g-vtrain:" + std::to_string(gpus / 8));
  iteration.cluster.leaf = {8, 2};
  const Plan plan = plan_for(gpus);
  PreprocessOptions options;
  options.rule = model.preprocess;
  options.max_tokens = model.max_tokens;
  const std::string data = std::string(DFLOP_SOURCE_DIR) + "/traces/datasets/vision_mix.csv";
  const Batch batch = make_batches(load_samples(data, options), plan.gbs, 1, 1)[0];
  Assignment assignment{plan.microbatches, plan.llm.dp, {}};
  for (int i = 0; i < plan.gbs; ++i) assignment.bin.push_back(i);
  iteration.program = lower(plan, model, batch, assignment);
  return iteration;
}

/// Prices, makes the links and simulates. items_per_second counts instructions. Argument: GPUs.
void simulate_cluster(benchmark::State& state) {
  const Iteration& iteration = iteration_of(static_cast<int>(state.range(0)));
  const AnalyticCostModel cost(find_model("llava-ov-llama3-8b"), iteration.cluster);
  Seconds makespan{0};
  for (auto _ : state) {
    const ProgramCosts costs = cost.price(iteration.program);
    const Network network = cluster_network(iteration.program, iteration.cluster);
    makespan = simulate(iteration.program, costs, Detail::usage, {&network, {}}).makespan;
  }
  const auto instructions = static_cast<std::int64_t>(iteration.program.instructions.size());
  state.SetItemsProcessed(state.iterations() * instructions);
  state.counters["instructions"] = static_cast<double>(instructions);
  state.counters["makespan_s"] = makespan.count();
}

/// 1F1B with messages of 1 MB on one link of 1 GB/s. items_per_second counts instructions.
void simulate_bus(benchmark::State& state) {
  testing::Pipeline pipeline;
  pipeline.stages = static_cast<int>(state.range(0));
  pipeline.microbatches = static_cast<int>(state.range(1));
  const PricedProgram priced = testing::make_pipeline(pipeline);
  const Network bus = shared_link(priced.program, Nanoseconds(1000), 1e9, 1e9);
  Seconds makespan{0};
  for (auto _ : state) {
    makespan = simulate(priced.program, priced.costs, Detail::usage, {&bus, {}}).makespan;
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(priced.program.instructions.size()));
  state.counters["makespan_s"] = makespan.count();
}

BENCHMARK(simulate_bus)->Args({16, 512})->Unit(benchmark::kMillisecond);
BENCHMARK(simulate_cluster)
    ->Arg(64)
    ->Arg(256)
    ->Arg(1024)
    ->Arg(4096)
    ->Arg(16384)
    ->Unit(benchmark::kMillisecond);

}  // namespace scale_bench
}  // namespace dflop
