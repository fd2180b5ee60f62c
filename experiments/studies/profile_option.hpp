// The option --profile has predictions rest on what was measured in place of what a GPU's data say.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/cost_model.hpp"
#include "core/measured/profile.hpp"
#include "core/plan.hpp"
#include "experiments/cli/option_values.hpp"
#include "traces/files/provenance.hpp"

namespace dflop {

/// A NamedProfile is what a file of `dflop profile` or dflop.torch.profile() holds.
struct NamedProfile {
  std::string path;
  ProfileTables tables;
};

/// Adds --profile, and --kernels-file, which goes with it.
void add_profile_option(Options& options);

/// Reads it, as with the kernels of --kernels-file where that is given; nothing where it was not given.
/// @throws Error (input) as parse_profile_tables() and parse_kernel_file(), and for a file of kernels of
/// another machine than the profile's
std::optional<NamedProfile> read_profile(const Values& values);

/// @throws Error (input) where a profile is of a model of other sizes
void require_model(const ModelSpec& model, const ProfileTables& profile, const std::string& path);

/// Checks that a profile is of the model that a recording names: of its sizes, or of its name where the
/// model's file is no longer there. @throws Error (input) otherwise
void require_recorded_model(const NamedProfile& profile, const Origin& model);

/// Checks that a profile has what a plan's stages need.
/// @throws Error (input) for a tp or a part of a device that was not measured, and for dp > 1 where no
/// all-reduce was
void require_measured(const NamedProfile& profile, std::span<const Stage> stages);
void require_measured(const NamedProfile& profile, const Plan& plan, const ModelSpec& model);

/// Returns the costs that a profile says. Stages of a mode of tp or on a part of a device that was not
/// measured, and those with dp > 1 where no all-reduce was, need more memory than any GPU has, so that
/// planners leave them out; the published one's rule of memory does not look at dp.
std::unique_ptr<const SumCostModel> measured_cost(const ProfileTables& profile);

}  // namespace dflop
