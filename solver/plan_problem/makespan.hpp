// A PlanMakespan is the makespan of a plan and batch as an assignment problem, for schedulers.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

#include "core/scheduler.hpp"
#include "solver/assignment_problem.hpp"
#include "solver/makespan/bound.hpp"
#include "solver/plan_problem/pipeline.hpp"

namespace dflop {

/// KnownPaths are paths that bounded the makespan of plans before. They are safe to use from several threads
/// at once.
class KnownPaths {
 public:
  /// Returns the paths of a plan; none for one that is not known.
  std::vector<PathFlow> find(const Plan& plan) const;
  void keep(const Plan& plan, std::vector<PathFlow> flows);

 private:
  mutable std::mutex mutex_;
  std::vector<std::pair<Plan, std::vector<PathFlow>>> plans_;
};

/// A PlanMakespan has pipeline, features and bounds of one request.
class PlanMakespan {
 public:
  explicit PlanMakespan(const ScheduleRequest& request);
  PlanMakespan(const PlanMakespan&) = delete;  // problems refer to it

  /// Makes the problem one of the makespan. `this` must outlive it.
  void describe(AssignmentProblem& problem);

  /// Takes the paths that `known` has for the plan, which are bounds for this batch and its durations, too.
  /// @return whether there are any
  bool recall(const Plan& plan, const KnownPaths& known);

  /// Finds paths for the bounds by solving the linear program: from milliseconds to half a second.
  void prove();

  void remember(const Plan& plan, KnownPaths& known) const;

  const PlanPipeline& plan() const { return plan_; }
  MakespanBounds& bounds() { return bounds_; }

 private:
  PlanPipeline plan_;
  MakespanBounds bounds_;
};

}  // namespace dflop
