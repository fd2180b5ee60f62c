#include "solver/schedulers/schedulers.hpp"

#include <algorithm>
#include <string>

#include "core/refuse.hpp"
#include "costmodel/sample_costs.hpp"
#include "solver/bins/heuristics.hpp"
#include "solver/plan_problem/makespan.hpp"
#include "solver/plan_problem/memory.hpp"

namespace dflop {
namespace {

/// A BatchProblem is a method's problem made of a batch, with all that it refers to.
struct BatchProblem {
  SampleCosts costs;
  CapSet caps;
  std::vector<std::string> names;
  AssignmentProblem problem;

  BatchProblem(const ScheduleRequest& request, Objective objective)
      : costs(sample_costs(request.cost, request.plan, request.model, request.samples)),
        caps(plan_caps(request)) {
    for (const Sample& sample : request.samples) names.push_back(sample.id);
    // In other layouts each dp rank encodes its own samples.
    const bool shared = objective != Objective::published && request.plan.layout == Layout::disaggregated;
    problem.bins = {.encoder_s = costs.encoder_s,
                    .llm_s = costs.llm_s,
                    .bins = request.plan.bins(),
                    .dp = request.plan.llm.dp,
                    .shared_encoder = shared,
                    .caps = caps.caps,
                    .names = names};
  }
  BatchProblem(const BatchProblem&) = delete;  // the problem refers to the members
};

class AssignmentScheduler final : public Scheduler {
 public:
  AssignmentScheduler(const Method& method, const SchedulerOptions& options)
      : method_(method), options_(options) {}
  std::string_view name() const override { return method_.name; }

  ScheduleResult schedule(const ScheduleRequest& request) const override {
    require_enough_samples(request.samples.size(), request.plan);
    const Objective objective = request.limits.objective.value_or(method_.objective);
    BatchProblem batch(request, objective);
    std::optional<PlanMakespan> makespan;
    bool to_prove = false;  // after the search
    if (objective == Objective::makespan) {
      makespan.emplace(request);
      // The same request has the same bound; but a time limit is for the search, and paths known for the plan
      // do.
      if (options_.prove && !request.limits.time_limit) makespan->prove();
      if (options_.prove && request.limits.time_limit) to_prove = !makespan->recall(request.plan, known_);
      makespan->describe(batch.problem);
    }
    const auto result = [&](const Solution& solution, std::span<const std::int32_t> bin) {
      ScheduleResult made{solution, {}, objective};
      if (!bin.empty())
        made.assignment = {request.plan.microbatches, request.plan.llm.dp, {bin.begin(), bin.end()}};
      return made;
    };
    SolveLimits limits{request.seed, budget(request.limits), request.limits.time_limit, request.stop};
    limits.stream = request.iteration;
    if (request.improved) {
      limits.improved = [&](std::span<const std::int32_t> bin, double seconds) {
        request.improved(result({.value = Seconds(seconds), .bound_kind = BoundKind::none}, bin));
      };
    }
    const AssignmentSolution solution = method_.solve(batch.problem, limits);
    ScheduleResult out = result(solution, solution.bin);
    if (to_prove && !solution.bin.empty() && !request.stop.stop_requested()) {
      makespan->prove();
      makespan->remember(request.plan, known_);
      const MakespanBound bound = makespan->bounds.bound(makespan->pipeline.features());
      out.bound = std::min(Seconds(bound.seconds), out.value);
      out.bound_kind = bound.kind;
    }
    return out;
  }

 private:
  /// Returns what limits the method's work, in its own unit; 0: what it thinks fit.
  std::int64_t budget(const ScheduleLimits& limits) const {
    if (method_.budget != Budget::nodes) return limits.steps.value_or(0);
    return limits.node_budget ? std::max<std::int64_t>(*limits.node_budget, 1) : 0;
  }

  const Method& method_;
  SchedulerOptions options_;
  mutable KnownPaths known_;  // of the makespan's bounds
};

}  // namespace

std::unique_ptr<Scheduler> make_scheduler(std::string_view name, const SchedulerOptions& options) {
  return std::make_unique<AssignmentScheduler>(find_method(name), options);
}

std::vector<std::string_view> scheduler_names(std::optional<Budget> budget) {
  std::vector<std::string_view> names;
  for (const Method& method : methods()) {
    if (!budget || method.budget == *budget) names.push_back(method.name);
  }
  return names;
}

void require_enough_samples(std::size_t samples, const Plan& plan) {
  if (samples >= static_cast<std::size_t>(plan.bins())) return;
  refuse_input("", "global batch of {} samples cannot fill {} bins (dp {} x {} microbatches)", samples,
               plan.bins(), plan.llm.dp, plan.microbatches);
}

Assignment random_assignment(std::size_t samples, const Plan& plan, std::uint64_t seed,
                             std::uint64_t iteration) {
  require_enough_samples(samples, plan);
  const BinProblem problem{{}, {}, plan.bins(), plan.llm.dp};
  return {plan.microbatches, plan.llm.dp, place_in_order(problem, shuffled_items(samples, seed, iteration))};
}

}  // namespace dflop
