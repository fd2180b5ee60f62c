// These functions declare and read the options of measured profiles, and of commands that measure them.
#pragma once

#include <optional>
#include <vector>

#include "core/measured/profile.hpp"
#include "experiments/cli/option_values.hpp"
#include "experiments/studies/named_profile.hpp"

namespace dflop {

/// Adds --profile and --kernels-file, which belongs to it.
void add_profile_option(Options& options);

/// Reads --profile, adjusted to the kernels of --kernels-file if that is given; nothing if --profile was not
/// given.
/// @throws Error (input) as parse_profile_tables(), parse_kernel_file() and take_kernels()
std::optional<NamedProfile> read_profile(const Values& values);

/// Reads --extrapolate. @throws Error (usage) without --profile
bool read_extrapolate(const Values& values);

/// Reads --foreign-profile, which belongs to --profile. @throws Error (usage)
bool read_foreign_profile(const Values& values);

/// The max value of --tp for commands that measure.
inline constexpr int kMaxTp = 64;

/// Reads --tp and --no-sequence-parallel. Returns the modes, ascending and without duplicates. @throws Error
/// (usage)
std::vector<TpMode> read_tp_modes(const Values& values);

}  // namespace dflop
