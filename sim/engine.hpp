// The event engine simulates a Program in virtual time. A SimExecutor simulates an Iteration.
#pragma once

#include <utility>
#include <vector>

#include "core/cost_model.hpp"
#include "core/iteration/iteration.hpp"
#include "core/program.hpp"
#include "core/timeline.hpp"
#include "sim/conditions.hpp"

namespace dflop {

/// Runs every group's instruction list in order. Time is in whole nanoseconds, and events are ordered by
/// (time, insertion number); events of a shared network come first at each time.
///
/// Compute and optimizer instructions occupy their group for costs.instruction. A send posts its message, and
/// the group continues at once. Without conditions.network, the message arrives costs.message later, whatever
/// else is on the links; with it, when the network has carried the message. A receive blocks its group until
/// its message arrives.
///
/// A collective starts when all participants have entered it and have ended the collectives that they entered
/// before in the same queue, and those in Collective::after have ended. It takes costs.collective, or as long
/// as the network needs. An all_reduce enters its collective and blocks the group until the collective ends.
/// An all_reduce_start enters without blocking, at once or while the next instruction runs (see
/// Collective::ready), and an all_reduce_wait blocks until the collective ends.
///
/// With conditions.cores, compute and optimizer instructions also wait until their group has its cores, and
/// return them when they end; sends, receives and collectives need none. Cores go to the group that asked
/// first. Of groups that ask at the same time, they go to the one with the lowest number, after all other
/// events of that time. The time that a group waits for cores is bubble. A paused or failed group keeps its
/// cores.
///
/// On shared GPUs (Program::shared_gpus), compute and optimizer instructions share the GPUs' memory bandwidth
/// and take longer if two of them together need more bandwidth than a GPU has (sim/shared_compute.hpp). All
/// that time counts as busy. Of the events of one time, a shared network's come first, then events of this
/// compute, then all others.
///
/// Per group, busy + bubble + wait = makespan. busy is compute and optimizer time. wait is idle time in which
/// the awaited message is in flight (posted, not yet arrived) or the collective is running. bubble is the
/// rest, including pauses and the time after the group's last instruction. transfer is the time in which at
/// least one message from or to the group, or one of its collectives, is in flight: the union of these
/// intervals, never more than the makespan.
///
/// A group begins at conditions.begins, and the time before is bubble.
///
/// Memory of each rank: costs.model_state all the time; costs.activation of a forward from its start, and
/// of a backward_input from its end, both to the end of the backward (or backward_weight) that frees
/// them; costs.workspace while the instruction runs.
///
/// With Detail::spans every instruction leaves one span, ordered by start; memory points mark every change.
///
/// If a group fails (conditions.pauses), the others run as far as they can, and Timeline::stalls says where
/// each group stopped.
///
/// @pre verify(program) accepts it; costs has one entry per instruction, message, collective and group.
/// @throws Error (internal) if the costs do not fit the program or are negative, if the program deadlocks
/// (naming the groups and what each waits for), or if memory does not return to the model state.
Timeline simulate(const Program& program, const ProgramCosts& costs, Detail detail,
                  const Conditions& conditions = {});

/// Returns how long the compute after an all_reduce_start runs before its group enters `collective`, if the
/// compute takes `compute` in total. Zero: the group enters at once.
Nanoseconds entry_delay(const Collective& collective, Nanoseconds compute);

/// For a program on shared GPUs, returns for each all_reduce_start that enters its collective during compute
/// the time at which it does; -1 for all other instructions. It simulates the program, because only the
/// simulation's own events are exact to the nanosecond. @pre what simulate() requires
std::vector<Nanoseconds> late_entry_times(const Program& program, const ProgramCosts& costs,
                                          const Conditions& conditions);

/// A SimExecutor simulates iterations, all under the same conditions. It keeps no state between runs.
class SimExecutor final : public Executor {
 public:
  SimExecutor() = default;
  /// `conditions.network` must outlive the executor.
  explicit SimExecutor(Conditions conditions) : conditions_(std::move(conditions)) {}

  Timeline run(const Iteration& iteration, Detail detail) const override {
    return simulate(iteration.program, iteration.costs, detail, conditions_);
  }

  /// Runs an iteration with the costs of a cost model instead of the iteration's own costs.
  Timeline run(const Iteration& iteration, const CostModel& cost, Detail detail) const {
    return simulate(iteration.program, price(cost, iteration), detail, conditions_);
  }

  /// Runs a program, which need not belong to a plan.
  Timeline run(const PricedProgram& priced, Detail detail) const {
    return simulate(priced.program, priced.costs, detail, conditions_);
  }

 private:
  Conditions conditions_;
};

}  // namespace dflop
