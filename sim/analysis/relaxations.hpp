// Relaxations are what-if runs in which one kind of cost takes no time or is balanced. They show how much
// time that cost adds to the iteration.
#pragma once

#include <cstdint>
#include <vector>

#include "core/cost_model.hpp"
#include "core/program.hpp"
#include "sim/conditions.hpp"

namespace dflop {

/// A Relaxation is a change to a run.
struct Relaxation {
  enum class Kind : std::uint8_t {
    free_stage,          ///< compute of `stage`, including the optimizer, takes no time
    free_messages,       ///< messages take no time
    free_collectives,    ///< collectives take no time
    free_communication,  ///< messages and collectives take no time
    no_stragglers,  ///< compute takes the mean over the groups of the same stage, operation and microbatch
    balanced,       ///< compute takes the mean over groups and microbatches of the same stage and operation
    no_bubbles,     ///< the run takes only the busy time of the busiest group
  };
  Kind kind = Kind::free_messages;
  std::int32_t stage = -1;

  bool operator==(const Relaxation&) const = default;
};

/// Returns the relaxations that apply to the program.
std::vector<Relaxation> relaxations(const Program& program);

/// Returns the makespan of a new simulation with the relaxation. For no_bubbles, returns the largest busy
/// time of a group; on shared GPUs this includes the slowdown by the other module. Means are rounded to whole
/// nanoseconds. If neither links, cores nor GPUs are shared, making a cost free never lengthens a run,
/// because every time is a maximum of sums. Otherwise it may lengthen a run. Taking means may lengthen any
/// run.
/// @pre what simulate() requires
Nanoseconds relaxed_makespan(const Program& program, const ProgramCosts& costs, const Relaxation& relaxation,
                             const Conditions& conditions = {});

}  // namespace dflop
