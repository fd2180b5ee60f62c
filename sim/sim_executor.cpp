#include "sim/sim_executor.hpp"

#include "sim/engine.hpp"

namespace dflop {

Timeline SimExecutor::run(const Program& program, Detail detail) const {
  return simulate(program, cost_.price(program), detail);
}

}  // namespace dflop
