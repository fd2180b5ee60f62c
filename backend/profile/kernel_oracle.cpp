#include "backend/profile/kernel_oracle.hpp"

#include <algorithm>

#include "core/support/median.hpp"

namespace dflop {

ChoiceQuality& ChoiceQuality::operator+=(const ChoiceQuality& other) {
  calls += other.calls;
  chosen_ns += other.chosen_ns;
  default_ns += other.default_ns;
  oracle_ns += other.oracle_ns;
  return *this;
}

namespace {

ChoiceQuality check_call(KernelBench& bench, const KernelTable& table, const TunedCall& tuned, int rounds) {
  bench.prepare(tuned.call);
  const std::size_t variants = bench.variants();
  std::vector<std::vector<double>> learned(variants);
  std::vector<std::vector<double>> timed(variants);
  for (std::size_t v = 0; v < variants; ++v) bench.run_ns(v);  // warms up
  for (int round = 0; round < 2 * rounds; ++round) {
    std::vector<std::vector<double>>& into = round % 2 == 0 ? learned : timed;
    for (std::size_t i = 0; i < variants; ++i) {
      const std::size_t v = (i + static_cast<std::size_t>(round / 2)) % variants;
      into[v].push_back(bench.run_ns(v));
    }
  }
  std::vector<double> usual;
  for (const std::vector<double>& ns : learned) usual.push_back(median(ns));
  const auto best = static_cast<std::size_t>(std::min_element(usual.begin(), usual.end()) - usual.begin());
  const std::size_t chosen = table.choose(KernelKey(tuned.call));
  return {1, tuned.weight * median(timed[chosen]), tuned.weight * median(timed[0]),
          tuned.weight * median(timed[best])};
}

}  // namespace

ChoiceQuality check_choices(const RankContext& rank, const KernelTable& table,
                            const std::vector<TunedCall>& calls, int rounds, const TuningOptions& options) {
  KernelBench bench(rank, options.seed);
  ChoiceQuality quality;
  for (const TunedCall& tuned : calls) {
    if (options.progress) options.progress(quality.calls, static_cast<std::int64_t>(calls.size()));
    quality += check_call(bench, table, tuned, rounds);
  }
  return quality;
}

}  // namespace dflop
