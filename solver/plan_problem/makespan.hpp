// A PlanMakespan formulates the makespan of a plan and batch as an assignment problem, for schedulers.
#pragma once

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "core/scheduler.hpp"
#include "solver/assignment_problem.hpp"
#include "solver/makespan/bound.hpp"
#include "solver/plan_problem/pipeline.hpp"

namespace dflop {

/// KnownPaths are paths that bounded the makespan of recent plans, at most kMaxPlans of them. Several
/// threads may use an object at once.
class KnownPaths {
 public:
  /// Returns the paths of a plan; none if the plan is unknown.
  std::vector<PathFlow> find(const Plan& plan) const {
    const std::lock_guard lock(mutex_);
    const auto known =
        std::find_if(rows_.begin(), rows_.end(), [&](const Row& row) { return row.first == plan; });
    return known == rows_.end() ? std::vector<PathFlow>{} : known->second;
  }

  void keep(const Plan& plan, std::vector<PathFlow> flows) {
    const std::lock_guard lock(mutex_);
    std::erase_if(rows_, [&](const Row& row) { return row.first == plan; });
    if (rows_.size() == kMaxPlans) rows_.erase(rows_.begin());
    rows_.emplace_back(plan, std::move(flows));
  }

 private:
  using Row = std::pair<Plan, std::vector<PathFlow>>;
  static constexpr std::size_t kMaxPlans = 64;

  mutable std::mutex mutex_;
  std::vector<Row> rows_;
};

/// A PlanMakespan has the pipeline, features and bounds of one request.
struct PlanMakespan {
  PlanPipeline pipeline;
  MakespanBounds bounds;

  explicit PlanMakespan(const ScheduleRequest& request)
      : pipeline(plan_pipeline(request.plan, request.model, request.cost, request.samples,
                               request.limits.memory_of_order())),
        bounds(pipeline.floor, pipeline.bound) {}
  PlanMakespan(const PlanMakespan&) = delete;  // problems refer to it

  /// Makes the makespan the objective of `problem`. This object must outlive `problem`.
  void describe(AssignmentProblem& problem) {
    problem.pipeline = &pipeline.pipeline;
    problem.features = pipeline.features();
    problem.bounds = &bounds;
  }

  /// Adds the paths that `known` has for the plan. They are also valid bounds for this batch and its
  /// durations.
  /// @return whether the bounds have any paths afterward
  bool recall(const Plan& plan, const KnownPaths& known) {
    for (const PathFlow& flow : known.find(plan)) bounds.use(flow);
    return !bounds.flows().empty();
  }

  /// Finds paths for the bounds by solving the linear program, which takes milliseconds to half a second.
  void prove() { bounds.prepare(pipeline.features()); }

  /// Stores this problem's paths in `known` for later batches of the plan.
  void remember(const Plan& plan, KnownPaths& known) const {
    if (!bounds.flows().empty()) known.keep(plan, bounds.flows());
  }
};

}  // namespace dflop
