// What choosing a kernel costs at every call: by a hash table of keys, and by a map of names behind a mutex,
// as some frameworks do.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/kernel_choice/rank_kernels.hpp"
#include "core/support/random.hpp"

namespace dflop {
namespace {

constexpr int kKeys = 300;  // a small model at several microbatch sizes
constexpr int kBatch = 64;  // calls per reading of the clock, which takes as long as some of them
constexpr int kBatches = 20'000;

std::vector<KernelCall> some_calls() {
  Random random(1);
  std::vector<KernelCall> calls;
  for (int i = 0; i < kKeys; ++i) {
    calls.push_back({.operation = static_cast<KernelOperation>(random.below(3)),
                     .inner = static_cast<std::int32_t>(64 << random.below(5)),
                     .outer = static_cast<std::int32_t>(64 << random.below(5)),
                     .tokens = static_cast<std::int64_t>(1 + random.below(1 << 14))});
  }
  return calls;
}

/// Runs `choose` on random calls, and reports quantiles of the mean of each batch, in ns.
template <typename Choose>
void run_batches(benchmark::State& state, const Choose& choose) {
  const std::vector<KernelCall> calls = some_calls();
  Random random(2);
  std::vector<double> ns;
  for (auto unused : state) {
    for (int b = 0; b < kBatches; ++b) {
      const KernelCall* batch[kBatch];
      for (const KernelCall*& call : batch) call = &calls[random.below(calls.size())];
      const auto begin = std::chrono::steady_clock::now();
      for (const KernelCall* call : batch) benchmark::DoNotOptimize(choose(*call));
      const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
      ns.push_back(took.count() / kBatch);
    }
  }
  std::sort(ns.begin(), ns.end());
  state.counters["p50_ns"] = ns[ns.size() / 2];
  state.counters["p99_ns"] = ns[ns.size() * 99 / 100];
}

void choose_kernel(benchmark::State& state) {
  KernelChoices choices;
  for (const KernelCall& call : some_calls()) choices.by_key[KernelKey(call)] = {.variant = 1};
  choices.timed_one_of = 16;
  RankKernels kernels;
  kernels.begin_step(choices);
  run_batches(state, [&](const KernelCall& call) { return kernels.choose(KernelKey(call)).variant; });
}
BENCHMARK(choose_kernel)->Iterations(1);

void choose_by_name(benchmark::State& state) {
  const auto name_of = [](const KernelCall& call) {
    return fmt::format("{}_{}_{}_{}", static_cast<int>(call.operation), call.inner, call.outer, call.tokens);
  };
  std::mutex mutex;
  std::unordered_map<std::string, int> variants;
  for (const KernelCall& call : some_calls()) variants[name_of(call)] = 1;
  run_batches(state, [&](const KernelCall& call) {
    const std::lock_guard lock(mutex);
    return variants.find(name_of(call))->second;
  });
}
BENCHMARK(choose_by_name)->Iterations(1);

}  // namespace
}  // namespace dflop
