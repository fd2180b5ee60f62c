// Relaxations are runs in which something takes no time. They show how much shorter the iteration would be
// without it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/cost_model.hpp"
#include "core/program.hpp"
#include "sim/conditions.hpp"

namespace dflop {

/// A Relaxation says what is changed in a run.
struct Relaxation {
  enum class Kind : std::uint8_t {
    free_stage,          ///< compute of `stage`, including the optimizer, takes no time
    free_messages,       ///< messages take no time
    free_collectives,    ///< collectives take no time
    free_communication,  ///< neither takes time
    no_stragglers,  ///< compute takes the mean over the groups of the same stage, operation and microbatch
    balanced,       ///< compute takes the mean over groups and microbatches of the same stage and operation
    no_bubbles,     ///< no group idles more than the busiest one: the busiest group's busy time
  };
  Kind kind = Kind::free_messages;
  std::int32_t stage = -1;

  bool operator==(const Relaxation&) const = default;
};

/// Returns the relaxations that apply to the program.
std::vector<Relaxation> relaxations(const Program& program);

/// Returns the makespan of a new simulation with the relaxation. For no_bubbles, returns the largest busy
/// time; on shared GPUs this is the run's busy time, including the slowdown by the other module. Means are
/// rounded to whole nanoseconds. Without a shared network, a limit of cores or shared GPUs, making something
/// free never lengthens a run, because every time is a maximum of sums. Means may lengthen it, and so may
/// shared links, cores and GPUs.
/// @pre as simulate()
Nanoseconds relaxed_makespan(const Program& program, const ProgramCosts& costs, const Relaxation& relaxation,
                             const Conditions& conditions = {});

}  // namespace dflop
