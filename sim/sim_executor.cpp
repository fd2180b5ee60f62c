#include "sim/sim_executor.hpp"

#include "sim/engine.hpp"

namespace dflop {

Timeline SimExecutor::run(const Iteration& iteration, Detail detail) const {
  return simulate(iteration.program, iteration.costs, detail, conditions_);
}

Timeline SimExecutor::run(const Iteration& iteration, const CostModel& cost, Detail detail) const {
  return simulate(iteration.program, price(cost, iteration), detail, conditions_);
}

Timeline SimExecutor::run(const PricedProgram& priced, Detail detail) const {
  return simulate(priced.program, priced.costs, detail, conditions_);
}

}  // namespace dflop
