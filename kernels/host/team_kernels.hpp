// Kernels of one thread become those of a Team here, by the arguments of each operation.
#pragma once

#include <memory>

#include "kernels/host/team.hpp"
#include "kernels/kernels.hpp"

namespace dflop::team {

/// Makes kernels whose operations are those of `single`, cut into chunks for the threads of a team: 64 rows,
/// or some sequences of one head. The functions of `single` must have no state of their own, as several
/// threads call them. Results differ by rounding from those of `single`, and not between teams. The team
/// outlives the kernels.
std::unique_ptr<Kernels> make_team_kernels(std::unique_ptr<Kernels> single, Team& team);

}  // namespace dflop::team
