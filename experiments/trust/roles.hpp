// This file simulates conditions for a role, such as --slow gpu=worst:1.5, once with each GPU in the role.
// Plans can then be compared under the same condition, although they number their ranks differently.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "experiments/studies/evaluation.hpp"
#include "experiments/studies/target.hpp"
#include "experiments/studies/what_if/what_if.hpp"

namespace dflop {

/// RoleRuns are the results of several runs; in each run a different GPU has the role.
struct RoleRuns {
  GpuRole role = GpuRole::worst;
  std::size_t gpus = 0;  ///< number of GPUs that had the role: one of each tp group, because a group is as
                         ///< slow as its slowest GPU
  int worst_gpu = 0;
  std::string worst_stage = {};  ///< the stage computed by this GPU; if it computes both modules, the
                                 ///< encoder's name comes first
  Evaluation worst = {};         ///< the longest run, or one in which the most ranks stall
  Seconds mean{0};               ///< mean iteration time over all GPUs whose run finishes
  Seconds p95{0};                ///< p95 of these iteration times, by nearest rank
  double idle_fraction = 0;
  double stalls = 0;  ///< number of tp groups that stall, averaged over the GPUs

  /// Returns the result for the role. For GpuRole::worst it is the worst run. For GpuRole::each it has the
  /// timelines of the worst run and the means of all runs.
  Evaluation result() const;
};

/// Returns the GPUs that get the role one after the other: the first GPU of every tp group.
std::vector<int> role_gpus(const Plan& plan);

/// RoleOptions are the optional settings of run_roles().
struct RoleOptions {
  WhatIfExecutor::Reprice reprice = {};
  int traced = 0;  ///< number of iterations of the worst run whose spans are kept
  std::optional<PipelineOrder> order = {};
};

/// Evaluates a schedule under a what-if that names a role, once for each of role_gpus().
RoleRuns run_roles(const Plan& plan, const Target& target, const ScheduleFile& schedule,
                   const WhatIf& what_if, const RoleOptions& options = {});

/// Returns a table of one row with the mean and the worst run.
Table role_table(const RoleRuns& runs);

}  // namespace dflop
