// Conditions for a role, such as --slow gpu=worst:1.5, are simulated with each GPU in turn. Plans are thus
// compared under the same condition, regardless of how they number their ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "experiments/studies/evaluation.hpp"
#include "experiments/studies/target.hpp"
#include "experiments/studies/what_if/what_if.hpp"

namespace dflop {

/// RoleRuns are the results of the runs in which each GPU has the role in turn.
struct RoleRuns {
  GpuRole role = GpuRole::worst;
  std::size_t gpus = 0;  ///< number of GPUs that had the role: one of each tp group, which is as slow as its
                         ///< slowest GPU
  int worst_gpu = 0;
  std::string worst_stage = {};  ///< the stage computed by this GPU; if it computes both modules, the
                                 ///< encoder's name comes first
  Evaluation worst = {};         ///< the longest run, or one in which the most ranks stall
  Seconds mean{0};               ///< iteration time, over all GPUs whose run ends
  Seconds p95{0};                ///< of the same times, by nearest rank
  double idle_fraction = 0;
  double stalls = 0;  ///< number of tp groups that stall, averaged over the GPUs

  /// Returns the result for the role: the worst run or, with `each`, the timelines of the worst run with the
  /// means of all runs.
  Evaluation result() const;
};

/// Returns the GPUs that get the role: the first of every tp group.
std::vector<int> role_gpus(const Plan& plan);

/// RoleOptions say how the runs differ from evaluate()'s usual ones.
struct RoleOptions {
  WhatIfExecutor::Reprice reprice = {};
  int traced = 0;  ///< number of iterations of the worst run whose spans are kept
  std::optional<PipelineOrder> order = {};
};

/// Evaluates a schedule once for each GPU, under a what-if that names a role.
RoleRuns run_roles(const Plan& plan, const Target& target, const ScheduleFile& schedule,
                   const WhatIf& what_if, const RoleOptions& options = {});

/// Returns the mean and the worst run as a table of one row.
Table role_table(const RoleRuns& runs);

}  // namespace dflop
