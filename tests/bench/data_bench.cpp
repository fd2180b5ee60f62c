// From a data set table to samples: 16,000 records with real shapes.
#include <benchmark/benchmark.h>

#include <string>

#include "traces/data/records.hpp"
#include "traces/preprocess/preprocess.hpp"

namespace dflop {
namespace data_bench {

const std::string kVisionMix = DFLOP_SOURCE_DIR "/traces/datasets/vision_mix.csv";

PreprocessOptions llava_ov() {
  PreprocessOptions options;
  options.rule = "llava-ov";
  return options;
}

void load(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(load_records(kVisionMix));
}

void load_and_preprocess(benchmark::State& state) {
  std::size_t samples = 0;
  for (auto _ : state) {
    samples = preprocess(load_records(kVisionMix), llava_ov(), kVisionMix).samples.size();
    benchmark::DoNotOptimize(samples);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(samples));
}

BENCHMARK(load)->Unit(benchmark::kMillisecond);
BENCHMARK(load_and_preprocess)->Unit(benchmark::kMillisecond);

}  // namespace data_bench
}  // namespace dflop
