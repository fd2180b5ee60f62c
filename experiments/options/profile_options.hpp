// These functions declare and read the options of measured profiles, and of commands that measure them.
#pragma once

#include <optional>
#include <vector>

#include "core/measured/profile.hpp"
#include "experiments/cli/option_values.hpp"
#include "experiments/studies/named_profile.hpp"

namespace dflop {

/// Adds --profile and --kernels-file, the kernels that the profile is adjusted to.
void add_profile_option(Options& options);

/// Reads --profile; nullopt if it was not given. If --kernels-file was given, adjusts the profile to its
/// kernels.
/// @throws what parse_profile_tables(), parse_kernel_file() and take_kernels() throw
std::optional<NamedProfile> read_profile(const Values& values);

/// Reads --extrapolate. @throws Error (usage) if it was given without --profile
bool read_extrapolate(const Values& values);

/// Reads --foreign-profile. @throws Error (usage) if it was given without --profile
bool read_foreign_profile(const Values& values);

/// The max value of --tp for commands that measure.
inline constexpr int kMaxTp = 64;

/// Reads --tp and --no-sequence-parallel. Returns the modes in ascending order, without duplicates. @throws
/// Error (usage)
std::vector<TpMode> read_tp_modes(const Values& values);

}  // namespace dflop
