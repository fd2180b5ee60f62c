#include "experiments/trust/schedule_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/refuse.hpp"
#include "costmodel/sample_costs.hpp"
#include "solver/bins.hpp"

namespace dflop {
namespace {

/// Relative tolerance for figures from a file: sums in a different order round differently.
constexpr double kSameFigure = 1e-9;

bool is_same(Seconds a, Seconds b) {
  return std::abs((a - b).count()) <= kSameFigure * std::max(std::abs(a.count()), std::abs(b.count()));
}

/// LoadProblem is the problem of balancing the bins of a batch.
struct LoadProblem {
  SampleCosts costs;
  BinProblem problem;

  LoadProblem(const Plan& plan, const Target& target, const std::vector<Sample>& samples, Objective objective)
      : costs(sample_costs(target.cost, plan, target.model, samples)) {
    problem.encoder_s = costs.encoder_s;
    problem.llm_s = costs.llm_s;
    problem.bins = plan.bins();
    problem.dp = plan.llm.dp;
    problem.shared_encoder = objective != Objective::published && has_encoder_ranks(plan.layout);
  }
  LoadProblem(const LoadProblem&) = delete;  // the problem refers to the costs
};

std::string problem_of(const ScheduledIteration& iteration, const CheckedIteration& checked) {
  if (checked.says_value && !is_same(iteration.value, checked.value)) {
    return fmt::format("c_max_s: expected {} for these bins and samples, found {}", checked.value.count(),
                       iteration.value.count());
  }
  if (iteration.bound_kind == BoundKind::none || iteration.objective == Objective::makespan) return {};
  const Seconds least = std::min(checked.least, checked.value);
  const bool simple = iteration.bound_kind == BoundKind::simple;
  const bool fits = simple ? is_same(iteration.bound, least) : iteration.bound >= least * (1 - kSameFigure);
  if (fits) return {};
  return fmt::format("bound_s: expected {}{} for these samples, found {}", simple ? "" : "at least ",
                     least.count(), iteration.bound.count());
}

}  // namespace

Seconds value_of(const Plan& plan, const Target& target, const std::vector<Sample>& samples,
                 const Assignment& assignment, Objective objective) {
  if (objective != Objective::makespan)
    return Seconds(largest_load(LoadProblem(plan, target, samples, objective).problem, assignment.bin));
  const Iteration made = make_iteration(target.problem(), plan, samples, assignment);
  return target.executor.run(made, Detail::usage).makespan;
}

std::vector<CheckedIteration> check_schedule(const ScheduleFile& schedule, const Plan& plan,
                                             const Target& target) {
  std::vector<CheckedIteration> all;
  for (const ScheduledIteration& iteration : schedule.iterations) {
    CheckedIteration& checked = all.emplace_back();
    checked.value = value_of(plan, target, iteration.samples, iteration.assignment, iteration.objective);
    if (iteration.objective != Objective::makespan)
      checked.least =
          Seconds(lower_bound(LoadProblem(plan, target, iteration.samples, iteration.objective).problem));
    checked.says_value = iteration.value.count() > 0;
    checked.problem = problem_of(iteration, checked);
  }
  return all;
}

ScheduleFile scheduled_by(const BinsFile& bins, const Plan& plan, const Target& target,
                          const std::vector<Batch>& batches, std::optional<Objective> objective,
                          std::uint64_t seed) {
  if (bins.iterations.size() != batches.size()) {
    refuse_input(bins.path, "expected bins of {} iterations (--iterations), found {}", batches.size(),
                 bins.iterations.size());
  }
  ScheduleFile schedule{"bins of " + bins.path, plan.model, plan.gbs, seed, {}, {}};
  for (std::size_t k = 0; k < batches.size(); ++k) {
    const std::string place = fmt::format("{}: iteration {}", bins.path, k);
    const BinsOfIteration& own = bins.iterations[k];
    for (std::size_t i = 0; i < own.samples.size() && i < batches[k].size(); ++i) {
      if (own.samples[i] == batches[k][i].id) continue;
      refuse_input(place, "expected sample '{}' in row {} of the iteration, as in the batch, found '{}'",
                   batches[k][i].id, i, own.samples[i]);
    }
    if (own.bin.size() != batches[k].size())
      refuse_input(place, "expected a bin for each of {} samples, found {}", batches[k].size(),
                   own.bin.size());
    ScheduledIteration& iteration = schedule.iterations.emplace_back();
    iteration.samples = batches[k];
    iteration.assignment = {plan.microbatches, plan.llm.dp, own.bin};
    validate(iteration.assignment, plan, batches[k].size(), place);
    iteration.objective = objective.value_or(plan.objective.value_or(Objective::published));
    iteration.value = value_of(plan, target, batches[k], iteration.assignment, iteration.objective);
    iteration.bound_kind = BoundKind::none;
    if (iteration.objective != Objective::makespan) {
      const double least = lower_bound(LoadProblem(plan, target, batches[k], iteration.objective).problem);
      iteration.bound = std::min(Seconds(least), iteration.value);
      iteration.bound_kind = BoundKind::simple;
      if (iteration.met()) iteration.status = ScheduleStatus::optimal;
    }
  }
  return schedule;
}

}  // namespace dflop
