// Runs the suite that every executor must pass on the simulator.
#include "sim/engine.hpp"
#include "tests/backend/contract/executor.hpp"

namespace dflop::testing {
namespace simulator_kinds_test {

ExecutorKind simulator(const std::string& name, const Conditions& conditions) {
  return {name, false, [conditions](const Plan&, const ModelSpec&) -> std::unique_ptr<Executor> {
            return std::make_unique<SimExecutor>(conditions);
          }};
}

INSTANTIATE_TEST_SUITE_P(Simulator, ExecutorContract,
                         ::testing::Values(simulator("plain", {}),
                                           simulator("cores", Conditions{.cores = 2})),
                         ExecutorName{});

}  // namespace simulator_kinds_test
}  // namespace dflop::testing
