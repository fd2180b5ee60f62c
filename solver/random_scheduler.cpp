#include "solver/random_scheduler.hpp"

#include <numeric>
#include <span>
#include <vector>

#include "core/random.hpp"
#include "solver/schedulers.hpp"

namespace dflop {

Assignment random_assignment(std::size_t samples, const Plan& plan, std::uint64_t seed,
                             std::uint64_t iteration) {
  require_enough_samples(samples, plan);
  std::vector<std::int32_t> order(samples);
  std::iota(order.begin(), order.end(), 0);
  Random(seed, iteration).shuffle(std::span(order));

  Assignment assignment{plan.microbatches, plan.llm.dp, std::vector<std::int32_t>(samples)};
  const std::size_t bins = plan.bins();
  std::size_t next = 0;
  for (std::size_t b = 0; b < bins; ++b) {
    const std::size_t count = samples / bins + (b < samples % bins ? 1 : 0);
    for (std::size_t i = 0; i < count; ++i) assignment.bin[order[next++]] = static_cast<std::int32_t>(b);
  }
  return assignment;
}

}  // namespace dflop
