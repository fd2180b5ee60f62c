#include "solver/planners/search/finish.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "core/support/parallel.hpp"
#include "solver/plan_problem/trial.hpp"
#include "solver/planners/search/cuts.hpp"
#include "solver/planners/search/score.hpp"
#include "solver/planners/trials/candidates.hpp"
#include "solver/schedulers/methods.hpp"
#include "solver/schedulers/schedulers.hpp"

namespace dflop {
namespace {

// The requested scheduler takes this many steps. It assumes durations affine in the work. Ten times as many
// steps take ten times as long, and the simulated result is no better.
constexpr std::int64_t kFinalSteps = 320;
// A schedule with this many steps costs about as much as this many simulated iterations. This is rough: it
// only determines how many plans are finished.
constexpr std::int64_t kRunsOfASchedule = 40;

constexpr double kWorthOfSpare = 1.03;  // how much slower a plan with memory to spare may be, as a factor

}  // namespace

PlanFinisher::PlanFinisher(const PlanRequest& request, const SearchBounds& bounds)
    : request_(request),
      bounds_(bounds),
      lpt_(make_scheduler("lpt", {.prove = false})),
      random_(make_scheduler("random")),
      asked_for_(make_scheduler(request.search.scheduler, {.prove = false})) {}

std::optional<Bytes> PlanFinisher::overrun_of(const Plan& plan, const Scheduler& scheduler) const {
  return overrun_of(plan, scheduler, hardest(request_.further));
}

std::optional<Bytes> PlanFinisher::overrun_of(const Plan& plan, const Scheduler& scheduler,
                                              std::span<const Batch> further) const {
  return overrun_within(plan, scheduler, further, request_.cluster.gpu.usable_memory());
}

std::optional<Bytes> PlanFinisher::overrun_within(const Plan& plan, const Scheduler& scheduler,
                                                  std::span<const Batch> further, Bytes limit) const {
  const bool minimizes = find_method(scheduler.name()).minimizes;
  const bool within = request_.search.respect_memory && minimizes;
  return overrun(request_, plan, further, minimizes ? *lpt_ : scheduler, request_.seed, within, limit);
}

bool PlanFinisher::fits_all(const RankedPlan& plan, Bytes limit) const {
  const std::unique_ptr<Scheduler> scheduler = make_scheduler(plan.scheduler, {.prove = false});
  return !overrun_within(plan.plan, *scheduler, request_.further, limit);
}

void PlanFinisher::put_choice_first(std::vector<RankedPlan>& plans,
                                    const std::function<bool()>& is_late) const {
  constexpr int kRefinished = 3;  // plans that do not fit, after each of which others are finished
  const Bytes usable = request_.cluster.gpu.usable_memory();
  for (int failed = 0; !plans.empty() && !fits_all(plans.front(), usable); ++failed) {
    plans.erase(plans.begin());
    if (failed < kRefinished && !is_late()) finish_next(plans);
  }
  if (plans.empty()) return;
  const Seconds worth = plans.front().objective * kWorthOfSpare;
  const auto chosen = std::ranges::find_if(plans, [&](const RankedPlan& plan) {
    return plan.objective <= worth && !is_late() && fits_all(plan, with_memory_to_spare(usable));
  });
  if (chosen != plans.end()) std::rotate(plans.begin(), chosen, chosen + 1);
}

/// Replaces the LPT microbatches of the next plans by the requested scheduler's, if these are better.
void PlanFinisher::finish_next(std::vector<RankedPlan>& plans) const {
  constexpr std::size_t kAtOnce = 4;
  std::vector<RankedPlan*> next;
  for (RankedPlan& plan : plans) {
    if (plan.scheduler == lpt_->name() && next.size() < kAtOnce) next.push_back(&plan);
  }
  parallel_for(next.size(), [&](std::size_t n) {
    std::optional<RankedPlan> better = filled(next[n]->plan);
    if (better && better->objective < next[n]->objective) *next[n] = *std::move(better);
  });
  std::ranges::stable_sort(plans, {}, &RankedPlan::objective);
}

RankedPlan PlanFinisher::as_run(const Leaf& leaf) const {
  return ranked(leaf.plan, Seconds(leaf.floor.bound_s), leaf.score, *lpt_);
}

RankedPlan PlanFinisher::finished(const Leaf& leaf) const {
  RankedPlan best = as_run(leaf);
  for (const Bytes bucket : free_parts(request_).gradient_buckets) {
    Plan plan = leaf.plan;
    plan.gradient_bucket = bucket;
    if (plan != leaf.plan) take_better(best, plan, *lpt_, {});
  }
  if (!looks_further_than_lpt()) return best;
  const Plan plan = best.plan;
  take_better(best, plan, *asked_for_, final_limits());
  return best;
}

std::optional<RankedPlan> PlanFinisher::filled(const Plan& plan) const {
  RankedPlan best;
  best.objective = Seconds(std::numeric_limits<double>::infinity());
  take_better(best, plan, *asked_for_, final_limits());
  return best.scheduler.empty() ? std::nullopt : std::optional(std::move(best));
}

std::optional<RankedPlan> PlanFinisher::filled_at_random(const Plan& plan) const {
  PlanScore score;
  extend_score(score, request_, plan, *random_, request_.batches.size());
  if (!score.fits || overrun_of(plan, *random_)) return {};
  return ranked(plan, Seconds(bounds_.plan_floor(plan).bound_s), score, *random_);
}

std::optional<RankedPlan> PlanFinisher::with_layers_moved(const RankedPlan& plan,
                                                          const std::function<bool()>& is_late,
                                                          std::int64_t& left) const {
  const Bytes usable = request_.cluster.gpu.usable_memory();
  const std::unique_ptr<Scheduler> scheduler = make_scheduler(plan.scheduler, {.prove = false});
  ScheduleLimits limits;
  if (scheduler->name() == asked_for_->name() && scheduler->name() != lpt_->name()) limits = final_limits();
  limits.steps = plan.steps;
  RankedPlan best = plan;
  bool has_moved = false;
  while (!is_late()) {
    std::vector<RankedPlan> moved;
    for (Plan& other : moved_by_one_layer(best.plan, request_.model)) {
      const PlanFloor floor = bounds_.plan_floor(other);
      if (floor.memory > usable || floor.bound_s >= best.objective.count()) continue;
      RankedPlan& one = moved.emplace_back();
      one.plan = std::move(other);
      one.bound = Seconds(floor.bound_s);
    }
    const std::int64_t each = scheduler->name() == lpt_->name() ? instructions_to_run(best.plan)
                                                                : instructions_to_finish(best.plan);
    left -= each * static_cast<std::int64_t>(moved.size());
    parallel_for(moved.size(), [&](std::size_t m) {
      PlanScore score;
      extend_score(score, request_, moved[m].plan, *scheduler, request_.batches.size(), limits);
      if (score.fits) moved[m] = ranked(moved[m].plan, moved[m].bound, score, *scheduler);
      moved[m].steps = plan.steps;
    });
    std::erase_if(moved, [&](const RankedPlan& other) {
      return other.scheduler.empty() || other.objective >= best.objective;
    });
    std::ranges::stable_sort(moved, {}, &RankedPlan::objective);
    const auto better = std::ranges::find_if(
        moved, [&](const RankedPlan& other) { return !overrun_of(other.plan, *scheduler); });
    if (better == moved.end()) break;
    best = std::move(*better);
    has_moved = true;
  }
  if (!has_moved) return {};
  if (!best.lpt) {
    PlanScore score;
    extend_score(score, request_, best.plan, *lpt_, request_.batches.size());
    if (score.fits) best.lpt = objective_value(request_.search.objective, score.iterations);
  }
  return best;
}

std::optional<RankedPlan> PlanFinisher::with_layers_moved_twice(const RankedPlan& plan,
                                                                const std::function<bool()>& is_late,
                                                                std::int64_t& left) const {
  std::optional<RankedPlan> start;
  if (plan.lpt && plan.scheduler != lpt_->name()) {
    RankedPlan by_lpt = plan;
    by_lpt.scheduler = lpt_->name();
    by_lpt.objective = *plan.lpt;
    by_lpt.steps = {};
    start = with_layers_moved(by_lpt, is_late, left);
    if (start && !is_late()) {
      left -= instructions_to_finish(start->plan);
      take_better(*start, Plan(start->plan), *asked_for_, final_limits());
    }
    if (start && start->objective >= plan.objective) start.reset();
    if (start && start->scheduler == lpt_->name()) return start;  // no more moves help under LPT
  }
  std::optional<RankedPlan> better = with_layers_moved(start ? *start : plan, is_late, left);
  return better ? better : start;
}

std::int64_t PlanFinisher::instructions_to_finish(const Plan& plan) const {
  return instructions_to_run(plan) * kRunsOfASchedule;
}

std::int64_t PlanFinisher::instructions_to_run(const Plan& plan) const {
  return instructions_of(plan) * static_cast<std::int64_t>(request_.batches.size());
}

RankedPlan PlanFinisher::ranked(const Plan& plan, Seconds bound, const PlanScore& score,
                                const Scheduler& scheduler) const {
  const Seconds objective = objective_value(request_.search.objective, score.iterations);
  return {.plan = plan,
          .scheduler = std::string(scheduler.name()),
          .objective = objective,
          .lpt = scheduler.name() == lpt_->name() ? std::optional(objective) : std::nullopt,
          .bound = bound,
          .peak_memory = score.peak_memory,
          .shares = score.mean()};
}

ScheduleLimits PlanFinisher::final_limits() const {
  ScheduleLimits limits;
  if (request_.search.respect_memory) limits.memory = request_.cluster.gpu.usable_memory();
  if (find_method(asked_for_->name()).budget == Budget::steps) limits.steps = kFinalSteps;
  return limits;
}

/// Runs all iterations of a plan and takes it if it is better than the best.
void PlanFinisher::take_better(RankedPlan& best, const Plan& plan, const Scheduler& scheduler,
                               const ScheduleLimits& limits) const {
  PlanScore score;
  extend_score(score, request_, plan, scheduler, request_.batches.size(), limits);
  if (!score.fits) return;
  // It may have other buckets than the leaf.
  RankedPlan other = ranked(plan, Seconds(bounds_.plan_floor(plan).bound_s), score, scheduler);
  other.steps = limits.steps;
  if (!other.lpt) other.lpt = best.lpt;
  if (other.objective < best.objective && !overrun_of(plan, scheduler)) best = std::move(other);
}

}  // namespace dflop
