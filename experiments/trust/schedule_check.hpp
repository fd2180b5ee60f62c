// This file checks schedules from files or users against dflop's own calculations.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "experiments/studies/plan_files.hpp"
#include "experiments/studies/target.hpp"
#include "traces/files/schedule.hpp"

namespace dflop {

/// Returns the value of an assignment: the largest load, as schedulers compute it, or the simulated makespan.
Seconds value_of(const Plan& plan, const Target& target, const std::vector<Sample>& samples,
                 const Assignment& assignment, Objective objective);

/// A CheckedIteration compares a file's values for an iteration with recalculated ones.
struct CheckedIteration {
  Seconds value{0};         ///< recalculated for these bins
  Seconds least{0};         ///< simple bound for these samples: no assignment has a smaller value
  bool says_value = false;  ///< the file has a c_max_s
  std::string problem;  ///< the first wrong value, such as "c_max_s: expected 1.25, found 1.5"; empty: none
};

/// Compares c_max_s and bound_s of each iteration with values recalculated from its bins and samples. c_max_s
/// must be the value of the objective. A bound of kind simple must equal the simple bound; any other bound
/// must be between the simple bound and the value. A bound of the makespan must be at most the value.
/// @pre validate(schedule, plan)
std::vector<CheckedIteration> check_schedule(const ScheduleFile& schedule, const Plan& plan,
                                             const Target& target);

/// A BinsFile holds the bins of a file.
struct BinsFile {
  std::string path;
  std::vector<BinsOfIteration> iterations;
};

/// Returns iterations with these batches and the bins of the file, rated like a scheduler's result
/// without a proof. `objective` is minimized; if empty, the plan's own objective, else the published one.
/// @throws Error (input) if the numbers of iterations and batches, or of bins and samples, differ, for ids
/// that differ from the samples' ids, and as validate() for assignments
ScheduleFile scheduled_by(const BinsFile& bins, const Plan& plan, const Target& target,
                          const std::vector<Batch>& batches, std::optional<Objective> objective,
                          std::uint64_t seed);

}  // namespace dflop
