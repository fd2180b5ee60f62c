// Perturbations are what-if changes to the costs of a Program.
#pragma once

#include <cstdint>
#include <vector>

#include "core/cost_model.hpp"
#include "core/program.hpp"
#include "core/support/random.hpp"
#include "core/units.hpp"

namespace dflop {

/// No operation under conditions, nor a run's together, may take longer: the engine counts nanoseconds in 64
/// bits, which are 292 years.
inline constexpr Seconds kLongestRun{1e9};

/// Returns the group that a rank belongs to. @pre 0 <= rank < program.ranks()
std::int32_t group_of_rank(const Program& program, std::int32_t rank);

/// Makes compute and optimizer steps of a group take `factor` times as long; the slowest rank sets the
/// group's pace. @throws Error (usage): an operation would take longer than kLongestRun
void slow_down(ProgramCosts& costs, const Program& program, std::int32_t group, double factor);

/// Multiplies every duration of an instruction by exp(sigma z - sigma² / 2), z standard normal: a log-normal
/// factor of mean 1. @throws Error as slow_down()
void add_jitter(ProgramCosts& costs, double sigma, Random& random);

/// Multiplies bandwidths of groups by `bandwidth_factor` (above 0): a message takes as long as over the
/// slower of its ends, a collective as long as its slowest participant. @throws Error as slow_down()
void slow_links(ProgramCosts& costs, const Program& program, const std::vector<double>& bandwidth_factor);

/// Makes messages and collectives take no time.
void free_communication(ProgramCosts& costs);

}  // namespace dflop
