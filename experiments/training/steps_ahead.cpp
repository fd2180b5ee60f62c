#include "experiments/training/steps_ahead.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "core/refuse.hpp"
#include "core/support/core_gate.hpp"

namespace dflop {
namespace {

/// Checks that a step has a schedule. @throws Error (input)
void require_feasible(std::int64_t step, const std::optional<ScheduledBatch>& batch) {
  if (batch && batch->result.feasible()) return;
  refuse_input("", "step {}: no schedule obeys the caps{}{}", step, batch ? ": " : "",
               batch ? batch->result.reason : std::string());
}

}  // namespace

StepsAhead::StepsAhead(StepsToPrepare steps, AssignmentSource& source)
    : steps_(std::move(steps)), source_(source) {
  const World& world = steps_.world;
  if (steps_.loader != nullptr) content_.emplace(*steps_.loader, steps_.plan, steps_.target.model, world);
  const bool can_be_beside = !steps_.executor.is_synchronous();
  // A single process needs all samples of a step, regardless of the schedule. One of several processes learns
  // its samples from the schedule, which all processes take together, one step ahead.
  const bool several = std::ssize(world.local_ranks()) < world.ranks();
  takes_ahead_ = several && (content_ || (can_be_beside && steps_.are_known_before));
  has_thread_ = can_be_beside && (takes_ahead_ || steps_.are_known_before);
}

void StepsAhead::begin_content() {
  if (!content_) return;
  if (!takes_ahead_) return content_->begin_all(steps_.batches.next());
  if (batch_ && batch_->result.feasible()) content_->begin(*batch_->samples, batch_->result.assignment);
}

void StepsAhead::begin(std::int64_t step) {
  if (takes_ahead_) batch_ = source_.next();
  begin_content();
  coming_ =
      std::async(has_thread_ ? std::launch::async : std::launch::deferred, &StepsAhead::prepare, this, step);
}

void StepsAhead::take_schedule() {
  if (takes_ahead_ || has_thread_) return;
  batch_ = source_.next();
}

StepsAhead::Preparation StepsAhead::prepare(std::int64_t step) {
  if (has_thread_) become_batch_work();
  if (has_thread_ && !takes_ahead_) batch_ = source_.next();
  Preparation made;
  made.scheduled = Clock::now();
  require_feasible(step, batch_);
  if (content_) content_->wait();
  made.loaded = Clock::now();
  made.step.batch = *std::exchange(batch_, std::nullopt);
  const Problem problem{steps_.target.model, steps_.target.cluster, *steps_.cost};
  made.step.iteration =
      make_iteration(problem, steps_.plan, *made.step.batch.samples, made.step.batch.result.assignment);
  if (has_thread_) made.step.inputs = steps_.executor.make_inputs(made.step.iteration);
  return made;
}

PreparedStep StepsAhead::take() {
  const Clock::time_point asked = Clock::now();
  Preparation made = coming_.get();
  const auto waited = [](Clock::time_point from, Clock::time_point to) {
    return std::max(Seconds(0), Seconds(to - from));
  };
  // Unless a thread took the schedule, the loop itself waited in next(), which measured the time.
  const bool in_thread = has_thread_ && !takes_ahead_;
  made.step.waited = in_thread ? waited(asked, made.scheduled) : made.step.batch.waited;
  if (content_) made.step.data_waited = waited(std::max(asked, made.scheduled), made.loaded);
  return std::move(made.step);
}

}  // namespace dflop
