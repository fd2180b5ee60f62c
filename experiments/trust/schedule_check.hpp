// This file recalculates the values of schedules from files or users, to check them.
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

/// A CheckedIteration is the result of checking one iteration of a schedule file.
struct CheckedIteration {
  Seconds value{0};         ///< recalculated value of the file's bins
  Seconds least{0};         ///< simple lower bound on the value of any assignment of these samples
  bool says_value = false;  ///< whether the file has a c_max_s
  std::string problem;  ///< the first wrong value, such as "c_max_s: expected 1.25, found 1.5"; empty: none
};

/// Checks c_max_s and bound_s of each iteration against values recalculated from its bins and samples.
/// c_max_s must equal the value of the objective. A bound of kind simple must equal the simple bound; any
/// other bound must be between the simple bound and the value. A bound of the makespan must be at most the
/// value.
/// @pre validate(schedule, plan)
std::vector<CheckedIteration> check_schedule(const ScheduleFile& schedule, const Plan& plan,
                                             const Target& target);

/// A BinsFile holds the bins that a file assigns to the samples of each iteration.
struct BinsFile {
  std::string path;
  std::vector<BinsOfIteration> iterations;
};

/// Returns a schedule with these batches and the bins of the file. It has the value of the objective and,
/// except for the makespan, the simple bound, like a scheduler's result without a proof. If `objective` is
/// empty, uses the plan's objective or else the published one.
/// @throws Error (input) if iterations and batches, or bins and samples, differ in number, or if ids differ
/// from the samples' ids; what validate() throws for an assignment
ScheduleFile scheduled_by(const BinsFile& bins, const Plan& plan, const Target& target,
                          const std::vector<Batch>& batches, std::optional<Objective> objective,
                          std::uint64_t seed);

}  // namespace dflop
