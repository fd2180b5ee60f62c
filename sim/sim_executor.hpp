// SimExecutor: the Executor that runs a Program in virtual time.
#pragma once

#include "core/cost_model.hpp"
#include "core/iteration/executor.hpp"

namespace dflop {

/// Prices a Program with a cost model and simulates it. Keeps no state between runs.
class SimExecutor final : public Executor {
 public:
  /// `cost` must outlive the executor.
  explicit SimExecutor(const CostModel& cost) : cost_(cost) {}

  /// simulate(program, cost.price(program), detail); see sim/engine.hpp.
  Timeline run(const Program& program, Detail detail) const override;

 private:
  const CostModel& cost_;
};

}  // namespace dflop
