// The cost of asynchronous scheduling per iteration: the time for which next() of a live service blocks the
// training loop, which sleeps for 50 ms in place of an iteration on GPUs that does not use the CPU. For
// comparison, the loop also calls the same scheduler itself.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "experiments/studies/batches.hpp"
#include "experiments/studies/data.hpp"
#include "experiments/studies/target.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "solver/service/scheduling_service.hpp"

namespace dflop {
namespace service_bench {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kSeed = 1;
constexpr Seconds kLimit(0.1);  // for the scheduler: longer than an iteration, so always stopped

/// vision_mix for LLaVA-OneVision on 32 GPUs.
struct Loop {
  std::shared_ptr<const Target> target = std::make_shared<Target>("llava-ov-llama3-8b", "a100-80g-vtrain:4");
  std::vector<std::shared_ptr<const Batch>> batches;
  Plan plan;

  explicit Loop(int gbs) {
    PreprocessOptions options;
    options.rule = target->model.preprocess;
    options.max_tokens = target->model.max_tokens;
    const auto samples = load_samples(DFLOP_SOURCE_DIR "/traces/datasets/vision_mix.csv", options);
    for (Batch& batch : make_batches(samples, gbs, 8, kSeed)) {
      batches.push_back(std::make_shared<const Batch>(std::move(batch)));
    }
    plan.model = target->model.name;
    plan.cluster = target->cluster.name;
    plan.gbs = gbs;
    plan.encoder = {1, 1, 8, {target->model.encoder.layers}};
    plan.llm = {4, 2, 3, split_layers(target->model.llm.layers, 2)};
    plan.microbatches = gbs / 32;
    validate(plan, target->model, target->cluster);
  }

  std::shared_ptr<const Batch> batch(std::uint64_t k) const { return batches[k % batches.size()]; }
  std::shared_ptr<const CostModel> cost() const { return {target, &target->cost}; }
};

/// Arguments: global batch size, index in scheduler_names().
void service_next(benchmark::State& state) {
  const Loop loop(static_cast<int>(state.range(0)));
  const std::string_view name = scheduler_names()[state.range(1)];
  ServiceOptions options;
  options.mode = ServiceMode::live;
  options.seed = kSeed;
  options.limits.time_limit = kLimit;
  SchedulingService service({[&](std::uint64_t k) { return loop.batch(k); }, make_scheduler(name), loop.plan,
                             loop.target->model, loop.cost()},
                            options);
  std::vector<double> held_s;
  double events = 0;
  benchmark::DoNotOptimize(service.next());  // nothing is ready yet
  for (auto _ : state) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const Clock::time_point begin = Clock::now();
    const auto batch = service.next();
    const Seconds held = Clock::now() - begin;
    state.SetIterationTime(held.count());
    held_s.push_back(held.count());
    events += static_cast<double>(batch->events.size());
  }
  std::sort(held_s.begin(), held_s.end());
  state.counters["median_us"] = 1e6 * held_s[held_s.size() / 2];
  state.counters["max_us"] = 1e6 * held_s.back();
  state.counters["events"] = events;
  state.SetLabel(std::string(name));
}

void schedule_in_the_loop(benchmark::State& state) {
  const Loop loop(static_cast<int>(state.range(0)));
  const std::string_view name = scheduler_names()[state.range(1)];
  const auto scheduler = make_scheduler(name);
  std::uint64_t k = 0;
  for (auto _ : state) {
    const ScheduleRequest request{*loop.batch(k), loop.plan, loop.target->model,    loop.target->cost,
                                  kSeed,          k,         {.time_limit = kLimit}};
    const Clock::time_point begin = Clock::now();
    benchmark::DoNotOptimize(scheduler->schedule(request));
    state.SetIterationTime(Seconds(Clock::now() - begin).count());
    ++k;
  }
  state.SetLabel(std::string(name));
}

/// Every scheduler, for batches of 512 and 2,048 samples.
void arguments(benchmark::internal::Benchmark* bench) {
  for (const std::int64_t gbs : {512, 2048}) {
    for (std::size_t s = 0; s < scheduler_names().size(); ++s) {
      bench->Args({gbs, static_cast<std::int64_t>(s)});
    }
  }
  bench->UseManualTime()->Unit(benchmark::kMicrosecond);
}

BENCHMARK(service_next)->Apply(arguments)->Iterations(100);
BENCHMARK(schedule_in_the_loop)->Apply(arguments)->Iterations(10);

}  // namespace service_bench
}  // namespace dflop
