#include "solver/schedulers/random.hpp"

#include <numeric>
#include <span>
#include <vector>

#include "core/support/random.hpp"
#include "solver/bins/in_order.hpp"
#include "solver/schedulers/schedulers.hpp"

namespace dflop {

Assignment random_assignment(std::size_t samples, const Plan& plan, std::uint64_t seed,
                             std::uint64_t iteration) {
  require_enough_samples(samples, plan);
  std::vector<std::int32_t> order(samples);
  std::iota(order.begin(), order.end(), 0);
  Random(seed, iteration).shuffle(std::span(order));

  BinProblem problem;
  problem.bins = plan.bins();
  problem.dp = plan.llm.dp;
  return {plan.microbatches, plan.llm.dp, place_in_order(problem, order)};
}

}  // namespace dflop
