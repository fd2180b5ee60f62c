// A NamedProfile is a file of measured times (--profile), which predictions use instead of a GPU's
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

/// Reads a file without adjusting it. @throws Error (input) as parse_profile_tables()
NamedProfile read_named_profile(const std::string& path);

/// Adjusts a profile measured with the default kernels to the kernels chosen by a file. A profile measured
/// with these kernels stays unchanged.
/// @throws Error (input) for a file from another machine, other libraries or another number of threads per
/// rank than the profile, and for a profile of other kernels
void take_kernels(NamedProfile& profile, const std::string& kernels_file);

/// Checks that a cluster's own speeds can be used for prices. `option` names the option that gives measured
/// speeds instead.
/// @throws Error (input) for placeholders, naming the cluster
void require_speeds(const ClusterSpec& cluster, std::string_view option = "'--profile FILE'");

/// Checks that a profile is for a model with the same sizes. @throws Error (input) otherwise
void require_model(const ModelSpec& model, const ProfileTables& profile, const std::string& path);

/// Checks that a profile is for the model that a recording names: by its sizes, or by its name if the model's
/// file no longer exists. @throws Error (input) otherwise
void require_recorded_model(const NamedProfile& profile, const Origin& model);

/// Checks that a profile has the measurements that a plan's stages need.
/// @throws Error (input) for a tp or a part of a device that was not measured, and for dp > 1 if no
/// all-reduce was measured
void require_measured(const NamedProfile& profile, std::span<const Stage> stages);
/// Checks the same for a plan, and prints a note once if attention within windows was not measured
/// separately.
void require_measured(const NamedProfile& profile, const Plan& plan, const ModelSpec& model);

/// Prints a note once if a program goes beyond a profile's points. `path` names the profile.
/// @throws Error (input), unless `extrapolate`, for more than twice the measured size on a device that
/// launches kernels, where small sizes predict almost nothing about large ones
void require_reach(const ProfiledCostModel& cost, const ProfileReach& reach, const std::string& path,
                   bool extrapolate);

/// Returns how far a plan's mean microbatches, and its batches' longest samples, go beyond the profile.
ProfileReach reach_of(const ProfiledCostModel& cost, const Plan& plan, const ModelSpec& model,
                      std::span<const Batch> batches);
/// Checks that a profile reaches far enough for these batches.
void require_reach(const NamedProfile& profile, const Plan& plan, const ModelSpec& model,
                   std::span<const Batch> batches, bool extrapolate);

/// Returns a cost model that uses a profile. Unmeasured stages (a mode of tp, a part of a device, or dp > 1
/// without an all-reduce) need more memory than any GPU has, so that planners avoid them. The exception is
/// the published planner, whose memory rule ignores dp.
std::unique_ptr<const SumCostModel> measured_cost(const ProfileTables& profile);

}  // namespace dflop
