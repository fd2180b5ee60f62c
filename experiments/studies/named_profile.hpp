// A NamedProfile is a file of measured times (--profile). Predictions use these times instead of a GPU's
// specifications.
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
#include "traces/files/provenance.hpp"

namespace dflop {

/// A NamedProfile holds a file from `dflop profile` or dflop.torch.profile().
struct NamedProfile {
  std::string path;
  ProfileTables tables;
  std::string hash = {};               ///< of the file's bytes
  std::optional<Origin> kernels = {};  ///< the kernel file that the tables were adjusted to
};

/// Reads a profile without adjusting it to kernels. @throws what parse_profile_tables() throws
NamedProfile read_named_profile(const std::string& path);

/// Adjusts a profile measured with the default kernels to the kernels of a kernel file. A profile measured
/// with the kernels of this file stays unchanged.
/// @throws Error (input) if the machine, the libraries or the number of threads per rank differ between file
/// and profile, and for a profile measured with the kernels of a different file
void take_kernels(NamedProfile& profile, const std::string& kernels_file);

/// Checks that a cluster's speeds can be used to predict times. `option` names the option that gives measured
/// times instead, for the error.
/// @throws Error (input) naming the cluster if its speeds are placeholders
void require_speeds(const ClusterSpec& cluster, std::string_view option = "'--profile FILE'");

/// Checks that a profile is for a model with the same sizes. @throws Error (input) otherwise
void require_model(const ModelSpec& model, const ProfileTables& profile, const std::string& path);

/// Checks that a profile is for the model that a recording names: by its sizes, or by its name if the model's
/// file no longer exists. @throws Error (input) otherwise
void require_recorded_model(const NamedProfile& profile, const Origin& model);

/// Checks that a profile has the measurements that a plan's stages need.
/// @throws Error (input) for a stage whose tp, or part of a device, was not measured, and for dp > 1 if no
/// all-reduce was measured
void require_measured(const NamedProfile& profile, std::span<const Stage> stages);
/// Checks that a profile has the measurements that the stages of a plan need. Prints a note once if the model
/// has attention within windows that was not measured separately.
void require_measured(const NamedProfile& profile, const Plan& plan, const ModelSpec& model);

/// Prints a note once if a program has larger sizes than the profile's measurements. `path` names the
/// profile.
/// @throws Error (input), unless `extrapolate`, for more than twice the measured size on a device that
/// launches kernels, because small sizes predict almost nothing about large ones there
void require_reach(const ProfiledCostModel& cost, const ProfileReach& reach, const std::string& path,
                   bool extrapolate);

/// Returns how far the sizes of a plan's mean microbatches, and of the longest samples of its batches, exceed
/// the sizes measured in the profile.
ProfileReach reach_of(const ProfiledCostModel& cost, const Plan& plan, const ModelSpec& model,
                      std::span<const Batch> batches);
/// Checks that a profile reaches far enough for a plan's batches: require_reach() of reach_of().
void require_reach(const NamedProfile& profile, const Plan& plan, const ModelSpec& model,
                   std::span<const Batch> batches, bool extrapolate);

/// Returns a cost model that uses a profile. To make planners avoid stages that were not measured, it gives
/// them more memory than any GPU has. Such stages have an unmeasured tp mode or part of a device, or dp > 1
/// without a measured all-reduce. The published planner does not avoid the last kind, because its memory rule
/// ignores dp.
std::unique_ptr<const SumCostModel> measured_cost(const ProfileTables& profile);

}  // namespace dflop
