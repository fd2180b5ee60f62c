// This file predicts, from a profile measured with the default kernels, the times with the chosen kernels.
#pragma once

#include "core/kernel_choice/kernel_calls.hpp"
#include "core/kernel_choice/kernel_table.hpp"
#include "core/measured/profile.hpp"

namespace dflop {

/// Returns how much faster a call is with the variant that the table chooses than with the default, in
/// nanoseconds. It is the difference of their mean times at the call's key, or at the nearest key with times,
/// scaled to the call's tokens and length by work_of(). Returns 0 if the table chooses no variant.
double chosen_saving_ns(const KernelTable& table, const KernelCall& call);

/// Returns a copy of the profile with each point's time reduced by the savings of its units' calls, but not
/// below zero.
/// @pre the profile's precision is one of DType, and its tables are for whole devices: the kernel table
/// has no times for parts of a device
ProfileTables with_chosen_kernels(ProfileTables profile, const KernelTable& table);

}  // namespace dflop
