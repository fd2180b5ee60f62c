// The event engine runs a Program in virtual time, and a SimExecutor an Iteration.
#pragma once

#include <utility>
#include <vector>

#include "core/cost_model.hpp"
#include "core/iteration/iteration.hpp"
#include "core/program.hpp"
#include "core/timeline.hpp"
#include "sim/conditions.hpp"

namespace dflop {

/// Runs every group's instruction list in order, in whole nanoseconds, events ordered by (time, insertion
/// number); what a shared network does at an instant comes before all else of that instant.
///
/// Compute and optimizer instructions occupy their group for costs.instruction. A send posts its message and
/// the group goes on at once; the message is there costs.message later, whatever else is on the links
/// (latency-bandwidth network), or when conditions.network has carried it. A receive blocks its group until
/// then. A collective starts when all participants have entered it and have no earlier one left, and takes
/// costs.collective, or as long as the network needs. An all_reduce enters it and blocks the group until its
/// end; an all_reduce_start enters it without blocking, now or while the next instruction runs (see
/// Collective::ready), and an all_reduce_wait blocks until the end.
///
/// With conditions.cores, compute and optimizer instructions also wait until their group has its cores, and
/// give them back when they end; a send, a receive and a collective need none. Cores go to who asks first, of
/// one instant to the lowest group, after all else of that instant. That wait is bubble; pauses keep the
/// cores, and so does a group that fails.
///
/// On shared GPUs (Program::shared_gpus) compute and optimizer instructions share the bandwidth of the GPUs'
/// memory and take longer where two of them ask for more than there is (sim/shared_compute.hpp); all that
/// time is busy. What happens to them comes before all else of an instant but a shared network's.
///
/// Per group, busy + bubble + wait = makespan: busy is compute and optimizer; wait is idle time in which the
/// awaited message is in flight (posted, not yet arrived) or the collective is running; bubble is the rest,
/// the time after its last instruction and pauses included. transfer is the time in which at least one
/// message from or to the group, or a collective of it, is in flight: the union of these intervals, never
/// more than the makespan.
///
/// A group begins at conditions.begins, and the time before is bubble.
///
/// Memory of each rank: costs.model_state all the time, costs.activation from the start of a forward, and
/// from the end of a backward_input, to the end of the backward (or backward_weight) that frees it,
/// costs.workspace while the instruction runs.
///
/// With Detail::spans every instruction leaves one span, ordered by start; memory points mark every change.
///
/// Where a group fails (conditions.pauses), the run goes on as far as the others get, and Timeline::stalls
/// says where each group stands.
///
/// @pre verify(program) accepts it; costs has one entry per instruction, message, collective and group.
/// @throws Error (internal) if the costs do not fit the program or are negative, if the program deadlocks
/// (naming the groups and what each waits for), or if memory does not return to the model state.
Timeline simulate(const Program& program, const ProgramCosts& costs, Detail detail,
                  const Conditions& conditions = {});

/// Returns how long the compute after an all_reduce_start runs before its group enters `collective`, where it
/// takes `compute` in all. Zero: the group enters at once.
Nanoseconds entry_delay(const Collective& collective, Nanoseconds compute);

/// Returns, per instruction of a program on shared GPUs, when an all_reduce_start comes into force while
/// compute runs; -1 for all others. It runs the program, as only the run's own events say so to the
/// nanosecond. @pre as simulate()
std::vector<Nanoseconds> late_entry_times(const Program& program, const ProgramCosts& costs,
                                          const Conditions& conditions);

/// A SimExecutor simulates what it is given under conditions that are the same for all. It keeps no state
/// between runs.
class SimExecutor final : public Executor {
 public:
  SimExecutor() = default;
  /// `conditions.network` outlives the executor.
  explicit SimExecutor(Conditions conditions) : conditions_(std::move(conditions)) {}

  Timeline run(const Iteration& iteration, Detail detail) const override {
    return simulate(iteration.program, iteration.costs, detail, conditions_);
  }

  /// Runs an iteration with the costs of another model in place of its own.
  Timeline run(const Iteration& iteration, const CostModel& cost, Detail detail) const {
    return simulate(iteration.program, price(cost, iteration), detail, conditions_);
  }

  /// Runs a program that need not be of a plan.
  Timeline run(const PricedProgram& priced, Detail detail) const {
    return simulate(priced.program, priced.costs, detail, conditions_);
  }

 private:
  Conditions conditions_;
};

}  // namespace dflop
