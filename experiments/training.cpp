#include "experiments/training.hpp"

#include <fmt/format.h>

#include <memory>

#include "core/error.hpp"
#include "core/lowering.hpp"
#include "core/verify.hpp"
#include "costmodel/schedule_tables.hpp"
#include "sim/sim_executor.hpp"
#include "solver/schedulers.hpp"
#include "solver/scheduling_service.hpp"

namespace dflop {
namespace {

/// A pointer to what somebody else owns.
template <typename T>
std::shared_ptr<const T> borrowed(const T& value) {
  return {std::shared_ptr<const T>(), &value};
}

double extrapolated_fraction(const ProfiledCostModel& cost, const Program& program) {
  double all = 0;
  double beyond = 0;
  for (const Instruction& i : program.instructions) {
    if (!is_compute(i.op)) continue;
    const Work& work = program.works[static_cast<std::size_t>(i.index)];
    ++all;
    if (cost.extrapolates(program.stages[i.stage], work)) ++beyond;
  }
  return all > 0 ? beyond / all : 0;
}

}  // namespace

TrainingLoop::TrainingLoop(const Plan& plan, const Target& target, const std::vector<Batch>& batches,
                           const SchedulerChoice& scheduler, LiveExecutor& executor,
                           const TrainingOptions& options)
    : plan_(plan),
      target_(target),
      batches_(batches),
      scheduler_(scheduler),
      executor_(executor),
      options_(options) {}

void TrainingLoop::run(const std::function<bool(const TrainingStep&, Timeline&&)>& on_step) {
  const auto first = static_cast<std::uint64_t>(options_.first_step - 1);
  const auto draw = [&](std::uint64_t k) {
    const std::uint64_t index = first + k;
    const bool more = index < static_cast<std::uint64_t>(options_.last_step);
    return more ? borrowed(batches_[index]) : nullptr;
  };
  SchedulerOptions scheduler;
  if (scheduler_.node_budget) scheduler.node_budget = *scheduler_.node_budget;
  if (scheduler_.steps) scheduler.steps = *scheduler_.steps;
  ServiceOptions service;
  service.mode = scheduler_.time_limit ? ServiceMode::live : ServiceMode::deterministic;
  service.seed = options_.seed;
  service.time_limit = scheduler_.time_limit;
  service.objective = scheduler_.objective;
  service.token_cap = scheduler_.token_cap;
  SchedulingService source({draw, make_scheduler(scheduler_.name, scheduler), plan_, target_.model,
                            borrowed<CostModel>(target_.cost)},
                           service);
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
      order_for_batch(plan_, target_.model, target_.cluster, target_.cost, *batch.samples, assignment);
  const Program program = lower(plan_, target_.model, *batch.samples, assignment, order);
  verify(program);
  const BatchContent content(plan_, target_.model, *batch.samples, assignment, options_.seed);
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
