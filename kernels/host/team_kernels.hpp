// make_team_kernels() turns single-threaded kernels into kernels that run on a Team, by cutting each
// operation's arguments into chunks.
#pragma once

#include <memory>

#include "kernels/host/team.hpp"
#include "kernels/kernels.hpp"

namespace dflop::team {

/// Makes kernels that compute with `single`, in chunks for the threads of a team. A chunk is 64 rows, or some
/// sequences of one key head. The functions of `single` must be stateless, because several threads call them.
/// Results are the same for all teams; they differ by rounding from the results of `single`. The team must
/// outlive the kernels.
std::unique_ptr<Kernels> make_team_kernels(std::unique_ptr<Kernels> single, Team& team);

}  // namespace dflop::team
