// What-if changes to the costs of a Program.
#pragma once

#include <cstdint>
#include <vector>

#include "core/cost_model.hpp"
#include "core/program.hpp"
#include "core/random.hpp"

namespace dflop {

/// The group that a rank belongs to. @pre 0 <= rank < program.ranks()
std::int32_t group_of_rank(const Program& program, std::int32_t rank);

/// Compute and optimizer steps of a group take `factor` times as long; the slowest rank sets the group's
/// pace.
void slow_down(ProgramCosts& costs, const Program& program, std::int32_t group, double factor);

/// Multiplies every duration of an instruction by exp(sigma z - sigma² / 2), z standard normal: a log-normal
/// factor of mean 1.
void add_jitter(ProgramCosts& costs, double sigma, Random& random);

/// Bandwidths of groups times `bandwidth_factor` (above 0): a message takes as long as over the slower of its
/// ends, a collective as long as its slowest participant.
void slow_links(ProgramCosts& costs, const Program& program, const std::vector<double>& bandwidth_factor);

/// Messages and collectives take no time.
void free_communication(ProgramCosts& costs);

}  // namespace dflop
