// The command of the README, run as a process.
#include <benchmark/benchmark.h>

#include <cstdlib>

namespace dflop {
namespace compare_bench {

void compare(benchmark::State& state) {
  const char* command = DFLOP_BINARY
      " compare --data " DFLOP_SOURCE_DIR
      "/traces/datasets/vision_mix.csv --model llava-ov-llama3-8b --cluster a100-80g:4 --gbs 512 "
      "--iterations 8 --seed 1 >/dev/null 2>&1";
  for (auto _ : state) {
    if (std::system(command) == 0) continue;
    state.SkipWithError("dflop compare fails");
    break;
  }
}

BENCHMARK(compare)->Iterations(1)->Unit(benchmark::kSecond)->UseRealTime();

}  // namespace compare_bench
}  // namespace dflop
