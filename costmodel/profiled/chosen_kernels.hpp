// A profile that was measured with the default kernels tells what the chosen ones would take.
#pragma once

#include "core/kernel_choice/kernel_calls.hpp"
#include "core/kernel_choice/kernel_table.hpp"
#include "core/measured/profile.hpp"

namespace dflop {

/// Returns by how much less a call takes, in nanoseconds, with the variant that the table chooses for it than
/// with the default: the difference of their means at the call's key, or the nearest that has any, brought
/// from there to the call's tokens and length by work_of(). 0 where nothing is chosen.
double chosen_saving_ns(const KernelTable& table, const KernelCall& call);

/// Returns a profile whose points take less by what their units' calls save. They take no less than nothing.
/// @pre the profile's precision is one of kDTypeNames, and its tables are of whole devices: on a part kernels
/// take other times, of which the table knows nothing
ProfileTables with_chosen_kernels(ProfileTables profile, const KernelTable& table);

}  // namespace dflop
