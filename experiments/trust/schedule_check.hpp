// Schedules of files and of people are held against what dflop finds itself.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "experiments/studies/study.hpp"
#include "traces/files/schedule.hpp"

namespace dflop {

/// Returns the value of an assignment: the largest load, as schedulers see it, or the makespan of a run.
Seconds value_of(const Plan& plan, const Target& target, const std::vector<Sample>& samples,
                 const Assignment& assignment, Objective objective);

/// A CheckedIteration has what a file says of an iteration beside what comes out again.
struct CheckedIteration {
  Seconds value{0};         ///< of these bins
  Seconds least{0};         ///< a simple bound of these samples: no assignment has a smaller value
  bool says_value = false;  ///< the file has a c_max_s
  std::string problem;      ///< what of it is not so, as "c_max_s: expected 1.25, found 1.5"; empty: nothing
};

/// Compares c_max_s and bound_s of each iteration with what they are for its bins and samples: c_max_s is the
/// value of the objective; a bound of kind simple is the simple one; any other is at least that, and at most
/// the value. A bound of the makespan is at most the value.
/// @pre validate(schedule, plan)
std::vector<CheckedIteration> check_schedule(const ScheduleFile& schedule, const Plan& plan,
                                             const Target& target);

/// Returns the iterations of these batches with the bins of a file of that name, rated as a scheduler's that
/// proves nothing. `objective`: what is to be small; nothing: the plan's own, else the published one.
/// @throws Error (input) for another number of iterations than batches, a number of bins that is not that of
/// the samples, ids that are not those of the samples, and as validate() of assignments
ScheduleFile scheduled_by(const std::vector<BinsOfIteration>& bins, const std::string& file, const Plan& plan,
                          const Target& target, const std::vector<Batch>& batches,
                          std::optional<Objective> objective, std::uint64_t seed);

}  // namespace dflop
