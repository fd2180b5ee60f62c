#include "experiments/training/correction.hpp"

#include <utility>

#include "core/support/core_gate.hpp"
#include "solver/schedulers/schedulers.hpp"

namespace dflop {
namespace {

/// A CorrectedAtOneTime is a cost model corrected with the knowledge at one time. It owns everything that the
/// model refers to.
struct CorrectedAtOneTime {
  std::shared_ptr<const CostModel> base;
  Correction correction;
  CorrectedCostModel model{*base, correction};
};

std::shared_ptr<const CostModel> corrected(const std::shared_ptr<const CostModel>& base,
                                           const Correction& correction) {
  const auto owned = std::shared_ptr<const CorrectedAtOneTime>(
      new CorrectedAtOneTime{.base = base, .correction = correction});
  return {owned, &owned->model};
}

}  // namespace

TrainingCorrection::TrainingCorrection(std::shared_ptr<const CostModel> base, const Plan& plan,
                                       std::shared_ptr<const Target> target, const SchedulerChoice& scheduler,
                                       std::uint64_t seed, std::optional<SwitchRule> rule, int cores)
    : base_(std::move(base)),
      plan_(plan),
      target_(std::move(target)),
      scheduler_(scheduler),
      seed_(seed),
      adaptive_(rule, {.probe = 8}),
      executor_(Conditions{.cores = cores}),
      current_(base_) {}

std::shared_ptr<const CostModel> TrainingCorrection::current() const {
  const std::lock_guard lock(mutex_);
  return current_;
}

void TrainingCorrection::begin_step(const ScheduledBatch& batch, const Iteration& iteration) {
  tracks_ = adaptive_.tracks();
  predicted_ = executor_.run(iteration, *current(), Detail::usage).makespan;
  if (!adaptive_.compares()) return;
  const auto learned = corrected(base_, adaptive_.learned());
  const auto kept = corrected(base_, adaptive_.kept());
  const Seconds own = executor_.run(iteration, *learned, Detail::usage).makespan;
  const auto compare = [this, learned, kept, samples = batch.samples, k = batch.iteration, own] {
    become_batch_work();
    return benefit(*learned, *kept, *samples, k, own);
  };
  benefit_ = std::async(std::launch::async, compare);
}

void TrainingCorrection::end_step(const ScheduledBatch& batch, const Timeline& timeline) {
  if (tracks_) adaptive_.learn(timeline, *base_, plan_, *batch.samples, batch.result.assignment);
  adaptive_.observe(timeline.makespan, predicted_, benefit_.valid() ? benefit_.get() : 0.0);
  auto next = corrected(base_, adaptive_.in_use());
  const std::lock_guard lock(mutex_);
  current_ = std::move(next);
}

/// Returns 1 - (time of the actual schedule) / (time of a schedule with the kept corrections). Both times are
/// predicted with everything learned so far.
double TrainingCorrection::benefit(const CostModel& learned, const CostModel& kept,
                                   std::span<const Sample> samples, std::uint64_t iteration,
                                   Seconds own) const {
  const ScheduleResult other = make_scheduler(scheduler_.name)
                                   ->schedule({samples, plan_, target_->model, kept, seed_, iteration,
                                               scheduler_.limits_on(target_->cluster, plan_)});
  if (!other.feasible()) return 0;
  PipelineOrder order = order_for_batch(plan_, target_->model, kept, samples, other.assignment,
                                        target_->cluster.gpu.usable_memory());
  const Iteration made = make_iteration({target_->model, target_->cluster, learned}, plan_, samples,
                                        other.assignment, std::move(order));
  return 1 - own / Seconds(executor_.run(made, Detail::usage).makespan);
}

}  // namespace dflop
