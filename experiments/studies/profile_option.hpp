// The option --profile has predictions rest on what was measured in place of what a GPU's data say.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/cluster.hpp"
#include "core/cost_model.hpp"
#include "core/iteration/planner.hpp"
#include "core/measured/profile.hpp"
#include "core/plan.hpp"
#include "costmodel/profiled/profiled.hpp"
#include "experiments/cli/option_values.hpp"
#include "traces/files/provenance.hpp"

namespace dflop {

/// A NamedProfile is what a file of `dflop profile` or dflop.torch.profile() holds.
struct NamedProfile {
  std::string path;
  ProfileTables tables;
  std::string hash = {};               ///< of the file as it was read
  std::optional<Origin> kernels = {};  ///< the file to whose kernels the tables were adjusted
};

/// Reads a file as it is. @throws Error (input) as parse_profile_tables()
NamedProfile read_named_profile(const std::string& path);

/// Adds --profile, and --kernels-file, which goes with it.
void add_profile_option(Options& options);

/// Reads it, as with the kernels of --kernels-file where that is given; nothing where it was not given. Of
/// commands that have --kernels, too, the file says what runs, and the profile is left as it was read.
/// @throws Error (input) as parse_profile_tables(), parse_kernel_file() and take_kernels()
std::optional<NamedProfile> read_profile(const Values& values);

/// Adjusts a profile that was measured with the default kernels, as it would be with those that a file
/// chooses. One that was measured with these stays as it is.
/// @throws Error (input) for a file of another machine, its libraries or threads of a rank than the
/// profile's, and for a profile of other kernels
void take_kernels(NamedProfile& profile, const std::string& kernels_file);

/// Checks that a cluster's own speeds may price. `option` is what gives measured ones in their place.
/// @throws Error (input) for placeholders, naming the cluster as it was found
void require_speeds(const ClusterSpec& cluster, std::string_view option = "'--profile FILE'");

/// @throws Error (input) where a profile is of a model of other sizes
void require_model(const ModelSpec& model, const ProfileTables& profile, const std::string& path);

/// Checks that a profile is of the model that a recording names: of its sizes, or of its name where the
/// model's file is no longer there. @throws Error (input) otherwise
void require_recorded_model(const NamedProfile& profile, const Origin& model);

/// Checks that a profile has what a plan's stages need.
/// @throws Error (input) for a tp or a part of a device that was not measured, and for dp > 1 where no
/// all-reduce was
void require_measured(const NamedProfile& profile, std::span<const Stage> stages);
/// Does so, and says once where attention within windows was not measured apart.
void require_measured(const NamedProfile& profile, const Plan& plan, const ModelSpec& model);

/// Adds --extrapolate, which belongs to --profile.
void add_extrapolate_option(Options& options);
/// Reads it. @throws Error (usage) without --profile
bool read_extrapolate(const Values& values);

/// Says once where a program goes beyond a profile's points. `path` is the profile's place.
/// @throws Error (input) for more than twice what was measured on a device that launches kernels, where few
/// tokens say next to nothing of many, unless it may extrapolate
void require_reach(const ProfiledCostModel& cost, const ProfileReach& reach, const std::string& path,
                   bool extrapolate);

/// Returns how far the mean microbatches of a plan, and its batches' longest samples, go.
ProfileReach reach_of(const ProfiledCostModel& cost, const Plan& plan, const ModelSpec& model,
                      std::span<const Batch> batches);
/// Checks that a profile reaches so far.
void require_reach(const NamedProfile& profile, const Plan& plan, const ModelSpec& model,
                   std::span<const Batch> batches, bool extrapolate);

/// Returns the costs that a profile says. Stages of a mode of tp or on a part of a device that was not
/// measured, and those with dp > 1 where no all-reduce was, need more memory than any GPU has, so that
/// planners leave them out; the published one's rule of memory does not look at dp.
std::unique_ptr<const SumCostModel> measured_cost(const ProfileTables& profile);

}  // namespace dflop
