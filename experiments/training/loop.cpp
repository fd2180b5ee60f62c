#include "experiments/training/loop.hpp"

#include <cmath>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>

#include "core/refuse.hpp"
#include "core/support/bytes.hpp"
#include "core/support/random.hpp"
#include "costmodel/analytic/flops.hpp"
#include "costmodel/sample_costs.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/training/held_out.hpp"
#include "experiments/training/live_setup.hpp"
#include "sim/engine.hpp"
#include "solver/schedulers/schedulers.hpp"

namespace dflop {
namespace {

std::string to_bytes(const std::optional<ScheduledBatch>& batch) {
  ByteWriter writer;
  if (!batch) return writer.take();
  writer.add(batch->iteration);
  writer.add(batch->result.status);
  writer.add(batch->result.reason);
  writer.add(batch->result.assignment.microbatches);
  writer.add(batch->result.assignment.dp);
  writer.add(batch->result.assignment.bin);
  return writer.take();
}

/// Returns a fingerprint of what each group does, with which groups, and with how much work.
std::uint64_t hash_of(const Program& program) {
  static_assert(std::has_unique_object_representations_v<Work>);  // so that the bytes hold only values, no
                                                                  // padding
  ByteWriter writer;
  for (const Instruction& i : program.instructions) {
    writer.add(i.op);
    writer.add(i.stage);
    writer.add(i.microbatch);
    writer.add(i.index);
  }
  for (const Work& work : program.works) writer.add(work);
  for (const Message& message : program.messages) {
    writer.add(message.source);
    writer.add(message.destination);
    writer.add(message.bytes.count);
  }
  for (const Collective& collective : program.collectives) writer.add(collective.groups);
  return stable_hash(writer.take());
}

/// Checks the loss and the gradient norm of a step. @throws Error (input)
void require_finite(const TrainingStep& done) {
  const double norm = done.gradient_norm.value_or(0);
  if (std::isfinite(done.loss) && std::isfinite(norm)) return;
  const auto without_sign = [](double value) { return std::isnan(value) ? std::abs(value) : value; };
  refuse_input(
      fmt::format("step {}", done.step),
      "the loss is {} and the norm of all gradients {}, expected finite numbers. The step was not "
      "taken. Continue from a checkpoint (--resume); a smaller --learning-rate, a longer --warm-up or "
      "--clip-norm may help",
      without_sign(done.loss), without_sign(norm));
}

}  // namespace

TrainingLoop::TrainingLoop(const Plan& plan, std::shared_ptr<const Target> target, BatchStream batches,
                           const SchedulerChoice& scheduler, World& world, LiveExecutor& executor,
                           const TrainingOptions& options)
    : plan_(plan),
      target_(std::move(target)),
      batches_(std::move(batches)),
      scheduler_(scheduler),
      world_(world),
      executor_(executor),
      options_(options) {
  if (!options_.correct || !world_.leads()) return;
  if (!options_.profile) throw Error(ErrorKind::internal, "correction without a profile to correct");
  correction_ = std::make_shared<TrainingCorrection>(options_.profile, plan_, target_, scheduler_,
                                                     options_.seed, options_.correction_rule, options_.cores);
}

std::shared_ptr<const CostModel> TrainingLoop::scheduling_cost() const {
  if (options_.profile) return options_.profile;
  return {target_, &target_->cost};
}

void TrainingLoop::run(const std::function<bool(const TrainingStep&, Timeline&&)>& on_step) {
  const auto first = static_cast<std::uint64_t>(options_.first_step - 1);
  const auto last = static_cast<std::uint64_t>(options_.last_step);
  BatchStream batches = batches_;
  batches.skip(options_.first_step - 1);
  const auto draw = [batches, last](std::uint64_t iteration) mutable {
    return iteration < last ? std::make_shared<const Batch>(batches.next()) : nullptr;
  };
  ServiceOptions options{
      .seed = options_.seed, .first = first, .limits = scheduler_.limits_on(target_->cluster, plan_)};
  if (options.limits.time_limit) options.mode = ServiceMode::live;
  std::optional<SchedulingService> service;
  if (world_.leads()) {
    ServiceInput input{draw, make_scheduler(scheduler_.name), plan_, target_->model, scheduling_cost()};
    if (correction_) input.cost_at = [c = correction_](std::uint64_t) { return c->current(); };
    service.emplace(std::move(input), options);
  }
  SharedSource source(world_, service ? &*service : nullptr, batches);
  StepsAhead ahead({.plan = plan_,
                    .target = *target_,
                    .cost = scheduling_cost(),
                    .world = world_,
                    .executor = executor_,
                    .loader = options_.loader,
                    .batches = batches,
                    .are_known_before = !options_.correct && !options.limits.time_limit},
                   source);
  // When the loop ends, a step in preparation must no longer wait for its schedule.
  const auto stop = [](SchedulingService* running) { running->stop(); };
  const std::unique_ptr<SchedulingService, decltype(stop)> stopped(service ? &*service : nullptr, stop);
  if (options_.first_step <= options_.last_step) ahead.begin(options_.first_step);
  for (std::int64_t step = options_.first_step; step <= options_.last_step; ++step) {
    PreparedStep prepared;
    ahead.take_schedule();
    between_steps([&] { prepared = ahead.take(); });
    for (const ScheduleEvent& event : prepared.batch.events) {
      say("dflop: note: step {}: {}: {}\n", event.iteration + 1, to_string(event.kind), event.message);
    }
    if (step < options_.last_step) ahead.begin(step + 1);
    Timeline timeline;
    TrainingStep done = run_step(step, std::move(prepared), timeline);
    std::exception_ptr failure;
    if (options_.held_out != nullptr && options_.held_out->data().is_due(step, options_.last_step)) {
      try {
        evaluate(done);
      } catch (...) {
        // The step itself is complete, so it is still logged and saved. The exception: processes that do not
        // know of each other's failure would wait for each other there.
        const bool all_know =
            std::ssize(world_.local_ranks()) == world_.ranks() || options_.held_out->failed_reading();
        if (!all_know) throw;
        failure = std::current_exception();
      }
    }
    const bool goes_on = on_step(done, std::move(timeline));
    if (failure) std::rethrow_exception(failure);
    if (!goes_on) return;
  }
}

/// Does work that every process does, or that one process does for all. No rank's state depends on it.
void TrainingLoop::between_steps(const std::function<void()>& work) {
  try {
    do_in_all(world_, work);
  } catch (const Aborted&) {
    throw;  // not all processes get here
  } catch (const Error&) {
    failed_between_steps_ = true;
    throw;
  }
}

/// Returns the delay of each instruction; empty if nothing is slowed down.
std::vector<Nanoseconds> TrainingLoop::delays(const Iteration& iteration) const {
  if (!options_.slower) return {};
  std::vector<Nanoseconds> longer = price(*options_.slower, iteration).instruction;
  const std::vector<Nanoseconds>& usual = iteration.costs.instruction;
  for (std::size_t i = 0; i < longer.size(); ++i) longer[i] -= usual[i];
  return longer;
}

/// Returns the leading process's kernel choices for the step, in all processes.
KernelChoices TrainingLoop::shared_choices() const {
  KernelChoices choices;
  if (world_.leads()) choices = options_.kernels->planner().next_step();
  const std::string bytes = world_.broadcast(world_.leads() ? dflop::to_bytes(choices) : "");
  return world_.leads() ? choices : parse_choices(bytes);
}

void TrainingLoop::evaluate(TrainingStep& done) const {
  const KernelChoices* kernels = options_.kernels != nullptr ? &done.kernels : nullptr;
  const HeldOutLoss held_out = options_.held_out->run(executor_, kernels);
  if (!world_.leads()) return;
  done.eval_loss = held_out.loss;
  done.eval_time = held_out.time;
}

TrainingStep TrainingLoop::run_step(std::int64_t step, PreparedStep prepared, Timeline& timeline) {
  const ScheduledBatch& batch = prepared.batch;
  const Iteration& iteration = prepared.iteration;
  require_same_program(world_, iteration.program);
  if (options_.check_program) between_steps([&] { options_.check_program(iteration.program); });
  const std::vector<Nanoseconds> longer = delays(iteration);
  StepOptions options;
  options.optimizer = options_.optimizer.at(step);
  options.clip_norm = options_.optimizer.clip_norm.value_or(std::numeric_limits<double>::infinity());
  options.delays = longer;
  TrainingStep done;
  if (options_.kernels != nullptr) {
    done.kernels = shared_choices();
    options.kernels = &done.kernels;
  }
  if (correction_) correction_->begin_step(batch, iteration);
  LiveResult result = executor_.step(iteration, options, std::move(prepared.inputs));
  const auto ended = std::chrono::steady_clock::now();
  if (last_end_) done.step_to_step = ended - *last_end_;
  last_end_ = ended;
  if (options_.kernels != nullptr && world_.leads()) {
    options_.kernels->planner().end_step(result.kernels,
                                         static_cast<double>(result.timeline.makespan.count()));
  }
  if (correction_) correction_->end_step(batch, result.timeline);
  done.step = step;
  done.data_waited = prepared.data_waited;
  done.loss = result.loss;
  done.gradient_norm = result.gradient_norm;
  between_steps([&] {
    if (world_.leads()) require_finite(done);
  });
  if (!world_.leads()) return done;
  done.learning_rate = options.optimizer.learning_rate;
  done.time = result.timeline.makespan;
  if (options_.profile) {
    done.predicted =
        correction_ ? correction_->predicted()
                    : SimExecutor(Conditions{.cores = options_.cores}).run(iteration, Detail::usage).makespan;
    done.extrapolated_fraction = extrapolated_fraction(*options_.profile, iteration.program);
  }
  done.tracked = correction_ && correction_->tracked();
  const Work work = total_work(*batch.samples);
  done.samples = std::ssize(*batch.samples);
  done.encoder_tokens = work.encoder.all_tokens();
  done.llm_tokens = work.llm.tokens;
  if (options_.peak_flop_per_s) {
    done.mfu = model_flop(target_->model, work.encoder, work.llm).count /
               (done.time.count() * *options_.peak_flop_per_s);
  }
  done.idle_fraction = idle_fraction(result.timeline);
  done.peak_memory = peak_memory(result.timeline);
  done.waited = prepared.waited;
  timeline = std::move(result.timeline);
  return done;
}

std::optional<ScheduledBatch> SharedSource::next() {
  if (source_ != nullptr) {
    std::optional<ScheduledBatch> batch = source_->next();
    world_.broadcast(to_bytes(batch));
    return batch;
  }
  const std::string bytes = world_.broadcast("");
  if (bytes.empty()) return std::nullopt;
  ByteReader reader(bytes);
  ScheduledBatch batch;
  batch.iteration = reader.get<std::uint64_t>();
  batch.samples = std::make_shared<const Batch>(batches_.next());
  batch.result.status = reader.get<ScheduleStatus>();
  batch.result.reason = reader.get_text();
  batch.result.assignment.microbatches = reader.get<int>();
  batch.result.assignment.dp = reader.get<int>();
  batch.result.assignment.bin = reader.get_all<std::int32_t>();
  return batch;
}

void require_same_program(World& world, const Program& program) {
  if (world.local_ranks().size() == static_cast<std::size_t>(world.ranks())) return;
  const std::string own = std::to_string(hash_of(program));
  if (world.broadcast(own) == own) return;
  throw Error(ErrorKind::input, "rank " + std::to_string(world.local_ranks().front()) +
                                    " and rank 0 made different programs from the step's schedule; all ranks "
                                    "of a run need the same options, data and processors");
}

}  // namespace dflop
