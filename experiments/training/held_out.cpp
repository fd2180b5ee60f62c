#include "experiments/training/held_out.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "backend/communicator.hpp"
#include "backend/model/made_up.hpp"
#include "core/program/forwards.hpp"
#include "core/refuse.hpp"
#include "core/support/bytes.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/training/loop.hpp"
#include "solver/schedulers/schedulers.hpp"

namespace dflop {
namespace {

/// Returns the assignment made by the leading process, in all processes.
Assignment shared_assignment(World& world, const Assignment& own) {
  ByteWriter writer;
  writer.add(own.microbatches);
  writer.add(own.dp);
  writer.add(own.bin);
  const std::string bytes = world.broadcast(world.leads() ? writer.take() : "");
  ByteReader reader(bytes);
  Assignment shared;
  shared.microbatches = reader.get<int>();
  shared.dp = reader.get<int>();
  shared.bin = reader.get_all<std::int32_t>();
  return shared;
}

std::vector<Assignment> scheduled(const std::vector<Batch>& batches, const TrainJob& job,
                                  const SchedulerChoice& choice) {
  const std::unique_ptr<Scheduler> scheduler = make_scheduler(choice.name);
  std::vector<Assignment> assignments;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const ScheduleResult result =
        scheduler->schedule({.samples = batches[i],
                             .plan = job.plan,
                             .model = job.target->model,
                             .cost = job.target->cost,
                             .seed = job.seed,
                             .iteration = i,
                             .limits = choice.limits_on(job.target->cluster, job.plan)});
    if (!result.feasible()) {
      refuse_input("option '--eval-data'", "batch {}: no schedule obeys the caps: {}", i + 1, result.reason);
    }
    assignments.push_back(result.assignment);
  }
  return assignments;
}

}  // namespace

std::string describe(const std::optional<HeldOutData>& data) {
  if (!data) return "none";
  return fmt::format("{} every {}, {} batches", data->fingerprint, data->every, data->batches.value_or(0));
}

std::vector<Batch> held_out_batches(const std::vector<Sample>& samples, const Plan& plan,
                                    std::int64_t most_batches) {
  std::vector<Batch> batches;
  const auto gbs = static_cast<std::size_t>(plan.gbs);
  for (std::size_t begin = 0; begin < samples.size() && std::ssize(batches) < most_batches; begin += gbs) {
    const std::size_t end = std::min(samples.size(), begin + gbs);
    if (static_cast<int>(end - begin) < plan.bins()) break;
    batches.emplace_back(samples.begin() + static_cast<std::ptrdiff_t>(begin),
                         samples.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return batches;
}

HeldOutEvaluation::HeldOutEvaluation(HeldOutData data, const TrainJob& job, const SchedulerChoice& scheduler,
                                     World& world, int data_threads, DType dtype)
    : data_(std::move(data)),
      job_(job),
      world_(world),
      batches_(held_out_batches(*data_.samples, job.plan, data_.batches.value_or(kMaxHeldOutBatches))) {
  std::vector<Assignment> own(batches_.size());
  if (world.leads()) own = scheduled(batches_, job, scheduler);
  for (const Assignment& assignment : own) assignments_.push_back(shared_assignment(world, assignment));
  if (data_.shards) {
    loader_ = std::make_shared<ContentLoader>(data_.shards, data_threads, dtype);
    contents_ = loader_;
    ahead_.emplace(*loader_, job.plan, job.target->model, world);
  } else {
    contents_ = std::make_shared<MadeUpContents>(job.target->model, job.seed, dtype);
  }
  std::size_t taken = 0;
  for (const Batch& batch : batches_) taken += batch.size();
  const std::size_t left = data_.samples->size() - taken;
  if (left > 0 && world.leads()) {
    say("dflop: note: evaluations use {} of {} samples, in {} batches\n", taken, data_.samples->size(),
        batches_.size());
  }
}

/// Waits in all processes. If one of them cannot read its data, none of them computes.
void HeldOutEvaluation::wait_for_content() {
  try {
    do_in_all(world_, [&] { ahead_->wait(); });
  } catch (const Aborted&) {
    throw;  // not all processes get here
  } catch (...) {
    failed_reading_ = true;
    throw;
  }
}

double HeldOutEvaluation::batch_loss(std::size_t batch, const LiveExecutor& executor,
                                     const KernelChoices* kernels) const {
  const Target& target = *job_.target;
  Iteration iteration = make_iteration({target.model, target.cluster, target.cost}, job_.plan,
                                       batches_[batch], assignments_[batch]);
  iteration.program = forwards_of(iteration.program);
  require_same_program(world_, iteration.program);
  StepOptions options;
  options.contents = contents_.get();
  options.kernels = kernels;
  return executor.step(iteration, options).loss;
}

HeldOutLoss HeldOutEvaluation::run(const LiveExecutor& executor, const KernelChoices* kernels) {
  const auto begin = std::chrono::steady_clock::now();
  double sum = 0;
  std::int64_t trained = 0;
  if (ahead_) ahead_->begin(batches_[0], assignments_[0]);
  for (std::size_t b = 0; b < batches_.size(); ++b) {
    if (ahead_) wait_for_content();
    if (ahead_ && b + 1 < batches_.size()) ahead_->begin(batches_[b + 1], assignments_[b + 1]);
    std::int64_t of_batch = 0;
    for (const Sample& sample : batches_[b]) of_batch += contents_->trained_tokens(sample);
    sum += batch_loss(b, executor, kernels) * static_cast<double>(of_batch);
    trained += of_batch;
  }
  if (loader_) loader_->drop_all();
  const Seconds time = std::chrono::steady_clock::now() - begin;
  return {trained > 0 ? sum / static_cast<double>(trained) : 0, time};
}

}  // namespace dflop
