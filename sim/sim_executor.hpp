// A SimExecutor is the Executor that runs an Iteration in virtual time.
#pragma once

#include <utility>

#include "core/iteration/executor.hpp"
#include "sim/conditions.hpp"

namespace dflop {

/// A SimExecutor simulates what it is given under conditions that are the same for all; see sim/engine.hpp.
/// It keeps no state between runs.
class SimExecutor final : public Executor {
 public:
  SimExecutor() = default;
  /// `conditions.network` outlives the executor.
  explicit SimExecutor(Conditions conditions) : conditions_(std::move(conditions)) {}

  Timeline run(const Iteration& iteration, Detail detail) const override;

  /// Runs an iteration with the costs of another model in place of its own.
  Timeline run(const Iteration& iteration, const CostModel& cost, Detail detail) const;

  /// Runs a program that need not be of a plan.
  Timeline run(const PricedProgram& priced, Detail detail) const;

 private:
  Conditions conditions_;
};

}  // namespace dflop
