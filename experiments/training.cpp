#include "experiments/training.hpp"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "core/error.hpp"
#include "core/lowering.hpp"
#include "core/verify.hpp"
#include "costmodel/schedule_tables.hpp"
#include "experiments/training_profile.hpp"
#include "sim/sim_executor.hpp"

namespace dflop {
TrainingLoop::TrainingLoop(const Plan& plan, std::shared_ptr<const Target> target,
                           std::shared_ptr<const std::vector<Batch>> batches,
                           const SchedulerChoice& scheduler, LiveExecutor& executor,
                           const TrainingOptions& options)
    : plan_(plan),
      target_(std::move(target)),
      batches_(std::move(batches)),
      scheduler_(scheduler),
      executor_(executor),
      options_(options) {}

void TrainingLoop::run(const std::function<bool(const TrainingStep&, Timeline&&)>& on_step) {
  const auto first = static_cast<std::uint64_t>(options_.first_step - 1);
  const auto last = static_cast<std::uint64_t>(options_.last_step);
  const auto draw = [batches = batches_, first, last](std::uint64_t k) {
    using Pointer = std::shared_ptr<const Batch>;
    return first + k < last ? Pointer(batches, &(*batches)[first + k]) : nullptr;
  };
  ServiceOptions options = service_options(*target_, scheduler_, options_.seed);
  if (scheduler_.time_limit) options.mode = ServiceMode::live;
  SchedulingService source({draw, make_scheduler(scheduler_), plan_, target_->model,
                            std::shared_ptr<const CostModel>(target_, &target_->cost)},
                           options);
  for (std::int64_t step = options_.first_step; step <= options_.last_step; ++step) {
    const std::optional<ScheduledBatch> batch = source.next();
    if (!batch || batch->result.status == ScheduleStatus::infeasible) {
      throw Error(ErrorKind::input,
                  fmt::format("step {}: no schedule obeys the caps{}{}", step, batch ? ": " : "",
                              batch ? batch->result.reason : std::string()));
    }
    for (const ScheduleEvent& event : batch->events) {
      fmt::print(stderr, "dflop: note: step {}: {}: {}\n", first + event.iteration + 1, to_string(event.kind),
                 event.message);
    }
    Timeline timeline;
    const TrainingStep done = run_step(step, *batch, timeline);
    if (!on_step(done, std::move(timeline))) return;
  }
}

TrainingStep TrainingLoop::run_step(std::int64_t step, const ScheduledBatch& batch, Timeline& timeline) {
  const Assignment& assignment = batch.result.assignment;
  const PipelineOrder order =
      order_for_batch(plan_, target_->model, target_->cluster, target_->cost, *batch.samples, assignment);
  const Program program = lower(plan_, target_->model, *batch.samples, assignment, order);
  verify(program);
  const BatchContent content(plan_, target_->model, *batch.samples, assignment, options_.seed);
  AdamWStep optimizer;
  optimizer.learning_rate = options_.learning_rate;
  optimizer.step = step;
  LiveResult result = executor_.run({program, content, optimizer});
  TrainingStep done;
  done.step = step;
  done.loss = result.loss;
  done.time = result.timeline.makespan;
  if (options_.predicting != nullptr) {
    done.predicted = SimExecutor(*options_.predicting).run(program, Detail::usage).makespan;
    done.extrapolated_fraction = extrapolated_fraction(*options_.predicting, program);
  }
  for (const Sample& sample : *batch.samples) done.llm_tokens += sample.llm_tokens;
  done.idle_fraction = idle_fraction(result.timeline);
  done.peak_memory = peak_memory(result.timeline);
  done.waited = batch.waited;
  timeline = std::move(result.timeline);
  return done;
}

}  // namespace dflop
