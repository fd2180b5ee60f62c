// Relaxations are runs in which something costs nothing, to see what the iteration would gain.
#pragma once

#include <cstdint>
#include <vector>

#include "core/cost_model.hpp"
#include "core/program.hpp"
#include "sim/conditions.hpp"

namespace dflop {

/// A Relaxation says what is changed about a run.
struct Relaxation {
  enum class Kind : std::uint8_t {
    free_stage,          ///< compute of `stage`, optimizer included, takes no time
    free_messages,       ///< messages take no time
    free_collectives,    ///< collectives take no time
    free_communication,  ///< neither takes time
    no_stragglers,       ///< compute takes the mean over the groups of a stage of the same operation and
                         ///< microbatch
    balanced,    ///< compute takes the mean over groups and microbatches of the same stage and operation
    no_bubbles,  ///< no group idles more than the busiest: its busy time
  };
  Kind kind = Kind::free_messages;
  std::int32_t stage = -1;

  bool operator==(const Relaxation&) const = default;
};

/// Returns the relaxations for which the program has something to relax.
std::vector<Relaxation> relaxations(const Program& program);

/// Returns the makespan with the relaxation, simulated anew; of no_bubbles the largest busy time, which on
/// shared GPUs is that of the run, with what modules take from each other. Means are rounded to whole
/// nanoseconds. Without a shared network, a limit of cores and shared GPUs what is free never makes a run
/// longer, as every instant is a maximum of sums; means may, and so may shared links, cores and GPUs.
/// @pre as simulate()
Nanoseconds relaxed_makespan(const Program& program, const ProgramCosts& costs, const Relaxation& relaxation,
                             const Conditions& conditions = {});

}  // namespace dflop
