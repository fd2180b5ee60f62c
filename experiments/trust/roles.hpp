// Conditions of a role, such as --slow gpu=worst:1.5, are run with each GPU in turn, so that plans are
// compared under the same condition, however they number their ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "experiments/studies/study.hpp"
#include "experiments/studies/what_if.hpp"

namespace dflop {

/// RoleRuns are the results of the runs in which each GPU had its turn.
struct RoleRuns {
  GpuRole role = GpuRole::worst;
  std::size_t gpus = 0;  ///< with a turn: one of each tp group, which is as slow as its slowest
  int worst_gpu = 0;
  std::string worst_stage = {};  ///< computed by this GPU; the encoder's before the LLM's if both
  Evaluation worst = {};         ///< the longest run, or one in which most ranks stall
  Seconds mean{0};               ///< iteration time, over all GPUs whose run ends
  Seconds p95{0};                ///< the same by nearest rank
  double idle_fraction = 0;
  double stalls = 0;  ///< number of tp groups that stall, mean over the GPUs

  /// Returns the result of the role: the worst run or, with `each`, the worst run's timelines with the means
  /// of all.
  Evaluation result() const;
};

/// Returns the GPUs that get a turn: the first of every tp group.
std::vector<int> role_gpus(const Plan& plan);

/// Evaluates a schedule once for each GPU, under a what-if that names a role. Spans are kept for `traced`
/// iterations of the worst run.
RoleRuns run_roles(const Plan& plan, const Target& target, const ScheduleFile& schedule,
                   const WhatIf& what_if, const WhatIfExecutor::Reprice& reprice = {}, int traced = 0,
                   const std::optional<PipelineOrder>& order = {});

/// Returns mean and worst as a table of one row.
Table role_table(const RoleRuns& runs);

}  // namespace dflop
