// Tests of choosing kernels use these made-up clocks: ranks compute nothing, and their calls take what a test
// says.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/kernel_choice/kernel_planner.hpp"
#include "core/kernel_choice/rank_kernels.hpp"
#include "core/support/random.hpp"

namespace dflop::testing {

/// Returns the names of `variants` variants for every operation.
inline VariantNames made_up_names(std::size_t variants) {
  VariantNames names;
  for (std::vector<std::string>& of_operation : names) {
    of_operation.emplace_back("default");
    for (std::size_t v = 1; v < variants; ++v) of_operation.push_back("variant" + std::to_string(v));
  }
  return names;
}

/// Returns the key of a product.
inline KernelKey product_key(int inner, std::int64_t tokens = 1024) {
  return KernelKey(
      KernelCall{.operation = KernelOperation::linear, .inner = inner, .outer = 64, .tokens = tokens});
}

/// A MadeUpKey is called so often by each rank in a step, and its variants take so long in the mean.
struct MadeUpKey {
  KernelKey key;
  int calls = 0;
  std::vector<double> ns;
};

/// A MadeUpRun has ranks that call keys. What a call takes is its mean times `pace(step, rank, variant)` and
/// noise of up to 10 % to both sides.
struct MadeUpRun {
  std::vector<MadeUpKey> keys;
  int ranks = 1;
  std::function<double(std::int64_t step, int rank, std::size_t variant)> pace =
      [](std::int64_t, int, std::size_t) { return 1.0; };
  double noise = 0.1;
  /// How often a rank calls a key in a step; without it as the key says.
  std::function<int(std::int64_t step, int rank, const MadeUpKey& key)> calls =
      [](std::int64_t, int, const MadeUpKey& key) { return key.calls; };

  /// A Step has the times of one step: the longest rank's, all ranks' calls one by one, and all calls
  /// together, also as they would have been with only the default.
  struct Step {
    double elapsed_ns = 0;
    double all_ns = 0;
    double default_ns = 0;
    double best_ns = 0;
    std::vector<std::vector<std::size_t>> variants;  ///< by rank
    std::vector<std::vector<KernelObservation>> seen;
  };

  Step run(const KernelChoices& choices, std::vector<RankKernels>& rank_kernels, Random& random) const {
    Step step;
    for (int r = 0; r < ranks; ++r) {
      RankKernels& kernels = rank_kernels[static_cast<std::size_t>(r)];
      kernels.begin_step(choices);
      double elapsed = 0;
      std::vector<std::size_t>& variants = step.variants.emplace_back();
      for (const MadeUpKey& key : keys) {
        const int often = calls(static_cast<std::int64_t>(choices.step), r, key);
        for (int call = 0; call < often; ++call) {
          const RankKernels::Chosen chosen = kernels.choose(key.key);
          const std::size_t variant = chosen.variant;
          const double chance = 1 + noise * (2 * random.uniform() - 1);
          const auto mean = [&](std::size_t v) {
            return key.ns[v] * pace(static_cast<std::int64_t>(choices.step), r, v);
          };
          const double ns = mean(variant) * chance;
          if (chosen.timed) RankKernels::observe(chosen, ns, 1);
          variants.push_back(variant);
          elapsed += ns;
          step.default_ns += mean(0) * chance;
          double best = mean(0);
          for (std::size_t v = 1; v < key.ns.size(); ++v) best = std::min(best, mean(v));
          step.best_ns += best * chance;
        }
      }
      step.all_ns += elapsed;
      step.elapsed_ns = std::max(step.elapsed_ns, elapsed);
      step.seen.push_back(kernels.end_step());
    }
    return step;
  }
};

}  // namespace dflop::testing
