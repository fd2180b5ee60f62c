#include "solver/schedulers/schedulers.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "costmodel/sample_costs.hpp"
#include "solver/methods/assignment_solvers.hpp"
#include "solver/plan_problem/caps.hpp"
#include "solver/plan_problem/makespan.hpp"

namespace dflop {
namespace {

/// A solver's problem made of a batch, with all that it refers to.
struct BatchProblem {
  SampleCosts costs;
  CapSet caps;
  std::vector<std::string> names;
  AssignmentProblem problem;

  BatchProblem(const ScheduleRequest& request, Objective objective)
      : costs(sample_costs(request.cost, request.plan, request.model, request.samples)),
        caps(plan_caps(request)) {
    for (const Sample& sample : request.samples) names.push_back(sample.id);
    BinProblem& bins = problem.bins;
    bins.encoder_s = costs.encoder_s;
    bins.llm_s = costs.llm_s;
    bins.bins = request.plan.bins();
    bins.dp = request.plan.llm.dp;
    // In other layouts each dp rank encodes its own samples.
    bins.shared_encoder = objective != Objective::published && request.plan.layout == Layout::disaggregated;
    bins.caps = caps.caps;
    bins.names = names;
  }
  BatchProblem(const BatchProblem&) = delete;  // the problem refers to the members
};

class AssignmentScheduler final : public Scheduler {
 public:
  AssignmentScheduler(std::unique_ptr<AssignmentSolver> solver, const SchedulerOptions& options)
      : solver_(std::move(solver)), options_(options) {}
  std::string_view name() const override { return solver_->name(); }

  ScheduleResult schedule(const ScheduleRequest& request) const override {
    require_enough_samples(request.samples.size(), request.plan);
    const Objective objective = request.objective.value_or(default_objective());
    BatchProblem batch(request, objective);
    std::optional<PlanMakespan> makespan;
    bool to_prove = false;  // after the search
    if (objective == Objective::makespan) {
      makespan.emplace(request);
      // The same request has the same bound; but a time limit is for the search, and paths known for the plan
      // do.
      if (options_.prove && !request.time_limit) makespan->prove();
      if (options_.prove && request.time_limit) to_prove = !makespan->recall(request.plan, known_);
      makespan->describe(batch.problem);
    }
    const auto result = [&](std::span<const std::int32_t> bin, double seconds) {
      ScheduleResult made;
      made.objective = objective;
      made.c_max = Seconds(seconds);
      made.bound_kind = BoundKind::none;
      if (!bin.empty())
        made.assignment = {request.plan.microbatches, request.plan.llm.dp, {bin.begin(), bin.end()}};
      return made;
    };
    SolveLimits limits{request.seed, steps(), request.time_limit, request.stop};
    limits.stream = request.iteration;
    if (request.improved) {
      limits.improved = [&](std::span<const std::int32_t> bin, double seconds) {
        request.improved(result(bin, seconds));
      };
    }
    AssignmentSolution solution = solver_->solve(batch.problem, limits);
    ScheduleResult out = result(solution.bin, solution.objective_s);
    out.bound = Seconds(solution.bound_s);
    out.bound_kind = solution.bound_kind;
    out.status = solution.status;
    out.reason = std::move(solution.reason);
    if (to_prove && !solution.bin.empty() && !request.stop.stop_requested()) {
      makespan->prove();
      makespan->remember(request.plan, known_);
      const MakespanBound bound = makespan->bounds().bound(makespan->plan().features());
      out.bound = std::min(Seconds(bound.seconds), out.c_max);
      out.bound_kind = bound.kind;
    }
    return out;
  }

 private:
  Objective default_objective() const {
    if (name() == "makespan" || name() == "auto") return Objective::makespan;
    return name() == "local-search" ? Objective::bins : Objective::published;
  }
  std::int64_t steps() const {
    return name() == "ilp" ? std::max<std::int64_t>(options_.node_budget, 1) : options_.steps;
  }

  std::unique_ptr<AssignmentSolver> solver_;
  SchedulerOptions options_;
  mutable KnownPaths known_;  // of the makespan's bounds
};

}  // namespace

std::unique_ptr<Scheduler> make_scheduler(std::string_view name, const SchedulerOptions& options) {
  return std::make_unique<AssignmentScheduler>(make_assignment_solver(name), options);
}

std::vector<std::string_view> scheduler_names() {
  return assignment_solver_names();
}

void require_enough_samples(std::size_t samples, const Plan& plan) {
  if (samples >= static_cast<std::size_t>(plan.bins())) return;
  throw Error(ErrorKind::input, "global batch of " + std::to_string(samples) + " samples cannot fill " +
                                    std::to_string(plan.bins()) + " bins (dp " + std::to_string(plan.llm.dp) +
                                    " x " + std::to_string(plan.microbatches) + " microbatches)");
}

}  // namespace dflop
