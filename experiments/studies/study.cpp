#include "experiments/studies/study.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "core/error.hpp"
#include "core/program/lowering.hpp"
#include "core/program/verify.hpp"
#include "costmodel/analytic/flops.hpp"
#include "costmodel/correction/corrected.hpp"
#include "costmodel/schedule_tables.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/presets/presets.hpp"
#include "experiments/studies/batch_stream.hpp"
#include "experiments/studies/memory_table.hpp"
#include "sim/engine.hpp"
#include "solver/planners/planners.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "traces/data/records.hpp"

namespace dflop {
namespace {

void report_assumptions(const Preprocessed& data, const PreprocessOptions& options) {
  const Assumptions& used = data.assumptions;
  if (used.image_sizes > 0) {
    say("dflop: note: {} records lack image sizes, {}x{} assumed (--assume-image)\n", used.image_sizes,
        options.assume_image.width, options.assume_image.height);
  }
  if (used.video_sizes > 0) {
    say("dflop: note: {} records lack a video size, {}x{} assumed (--assume-video)\n", used.video_sizes,
        options.assume_video.size.width, options.assume_video.size.height);
  }
  if (used.video_fps > 0) {
    say("dflop: note: {} records lack a frame rate, {} fps assumed (--assume-video)\n", used.video_fps,
        options.assume_video.fps);
  }
  if (data.left_out > 0) {
    say("dflop: note: {} records of other modalities left out (--modalities)\n", data.left_out);
  }
}

/// find(), whose errors also say which key of a plan asked for it.
template <typename Find>
auto named_by(const std::string& plan_file, const std::string& key, Find find) {
  try {
    return find();
  } catch (const Error& error) {
    if (plan_file.empty()) throw;
    throw Error(error.kind(), error.what(), plan_file + ": key '" + key + "'");
  }
}

ClusterSpec changed(ClusterSpec cluster, const std::function<void(ClusterSpec&)>& change) {
  if (change) change(cluster);
  return cluster;
}

/// A pointer to what somebody else owns.
template <typename T>
std::shared_ptr<const T> borrowed(const T& value) {
  return {std::shared_ptr<const T>(), &value};
}

/// What the scheduler predicts with.
const CostModel& scheduling_cost(const Target& target, const SchedulerChoice& choice) {
  return choice.cost != nullptr ? *choice.cost : target.cost;
}

/// A service of these batches. Everything is borrowed: it is for deterministic services, whose threads end
/// with them.
ServiceInput service_input(const Plan& plan, const Target& target, const std::vector<Batch>& batches,
                           const SchedulerChoice& choice) {
  const auto draw = [&batches](std::uint64_t k) {
    return k < batches.size() ? borrowed(batches[k]) : nullptr;
  };
  const CostModel& cost = scheduling_cost(target, choice);
  return {draw, make_scheduler(choice.name), plan, target.model, borrowed(cost)};
}

ScheduleFile empty_schedule(const Plan& plan, const std::vector<Batch>& batches,
                            const SchedulerChoice& choice, std::uint64_t seed) {
  return {choice.name, plan.model, static_cast<int>(batches.empty() ? 0 : batches[0].size()), seed, {}};
}

PipelineOrder iteration_order(const Plan& plan, const Target& target, std::span<const Sample> samples,
                              const Assignment& assignment, const RunOptions& options) {
  if (options.order) return *options.order;
  return order_for_batch(plan, target.model, target.cluster, target.cost, samples, assignment);
}

/// Whether a run says what the schedule comes to. A scheduler that makes makespans small searches with
/// durations that are affine in the work and may not be those of the cost model: what counts is the run.
bool is_run(const ScheduledIteration& iteration) {
  return iteration.objective == Objective::makespan && iteration.feasible();
}

void set_makespan(ScheduledIteration& iteration, Seconds makespan) {
  iteration.value = makespan;
  if (!meets_bound(iteration.bound.count(), makespan.count())) {
    throw Error(ErrorKind::internal, fmt::format("a makespan of {} s below its bound of {} s",
                                                 makespan.count(), iteration.bound.count()));
  }
  iteration.bound = std::min(iteration.bound, makespan);  // as rounded
  if (iteration.met()) {
    iteration.status = ScheduleStatus::optimal;
    iteration.reason.clear();
  } else if (iteration.status == ScheduleStatus::optimal) {
    iteration.status = ScheduleStatus::heuristic;
  }
}

void measure_makespan(const Plan& plan, const Target& target, const CostModel& cost,
                      ScheduledIteration& iteration) {
  if (!is_run(iteration)) return;
  const PipelineOrder order = iteration_order(plan, target, iteration.samples, iteration.assignment, {});
  const Program program = lower(plan, target.model, iteration.samples, iteration.assignment, order);
  const ProgramCosts costs = price_batch(cost, program, plan, iteration.samples, iteration.assignment);
  set_makespan(iteration, simulate(program, costs, Detail::usage).makespan);
}

/// Passes on what another source gives, and keeps it; tells of events.
class RecordedAssignments final : public AssignmentSource {
 public:
  /// `cost` is what makespans are measured with; null: the caller does that. `seconds`, where given, receives
  /// the time that the scheduler took for each.
  RecordedAssignments(const Plan& plan, const Target& target, const CostModel* cost, AssignmentSource& source,
                      ScheduleFile& file, std::vector<Seconds>* seconds = nullptr)
      : plan_(plan), target_(target), cost_(cost), source_(source), file_(file), seconds_(seconds) {}

  std::optional<ScheduledBatch> next() override {
    std::optional<ScheduledBatch> batch = source_.next();
    if (!batch) return batch;
    file_.iterations.push_back({batch->result, *batch->samples});
    if (cost_ != nullptr) measure_makespan(plan_, target_, *cost_, file_.iterations.back());
    if (seconds_ != nullptr) seconds_->push_back(batch->scheduling);
    for (const ScheduleEvent& event : batch->events) {
      say("dflop: note: iteration {}: {}: {}\n", event.iteration, to_string(event.kind), event.message);
    }
    return batch;
  }

 private:
  const Plan& plan_;
  const Target& target_;
  const CostModel* cost_;
  AssignmentSource& source_;
  ScheduleFile& file_;
  std::vector<Seconds>* seconds_;
};

/// Gives what a schedule holds.
class StoredAssignments final : public AssignmentSource {
 public:
  explicit StoredAssignments(const ScheduleFile& file) : file_(file) {}

  std::optional<ScheduledBatch> next() override {
    if (next_ == file_.iterations.size()) return std::nullopt;
    const ScheduledIteration& stored = file_.iterations[next_];
    ScheduledBatch batch;
    batch.iteration = next_++;
    batch.samples = borrowed(stored.samples);
    batch.result = stored;
    return batch;
  }

 private:
  const ScheduleFile& file_;
  std::size_t next_ = 0;
};

Work total_work(const std::vector<Sample>& samples) {
  Work work;
  for (const Sample& sample : samples) {
    work.encoder += sample.encoder();
    work.llm += sample.llm();
  }
  return work;
}

/// Runs what a source gives, `iterations` in all, up to the first that stalls. Nothing where one is
/// infeasible.
std::optional<Evaluation> run_iterations(const Plan& plan, const Target& target, AssignmentSource& source,
                                         std::size_t iterations, int traced, const RunOptions& options) {
  Evaluation result;
  std::vector<Seconds> times;
  double samples = 0;
  double tokens = 0;
  double flop = 0;
  double idle_time = 0;
  Progress progress("simulating");
  while (const std::optional<ScheduledBatch> batch = source.next()) {
    if (!batch->result.feasible()) return std::nullopt;
    const std::size_t k = result.timelines.size();
    const Assignment& assignment = batch->result.assignment;
    PipelineOrder order = iteration_order(plan, target, *batch->samples, assignment, options);
    const Program program = lower(plan, target.model, *batch->samples, assignment, order);
    if (k == 0) result.order = std::move(order);
    verify(program);
    const Detail detail = static_cast<int>(k) < traced ? Detail::spans : Detail::usage;
    Timeline timeline =
        options.runner ? options.runner(k, program, detail) : target.executor.run(program, detail);
    if (!timeline.stalls.empty()) {
      result.timelines.push_back(std::move(timeline));
      return result;
    }
    const Seconds time = timeline.makespan;
    const Work work = total_work(*batch->samples);
    times.push_back(time);
    samples += static_cast<double>(batch->samples->size());
    tokens += static_cast<double>(work.llm.tokens);
    flop += model_flop(target.model, work.encoder, work.llm).count;
    idle_time += idle_fraction(timeline) * time.count();
    result.peak_memory = std::max(result.peak_memory, peak_memory(timeline));
    result.timelines.push_back(std::move(timeline));
    progress.update(static_cast<std::int64_t>(k) + 1, static_cast<std::int64_t>(iterations));
  }
  const Seconds total = std::accumulate(times.begin(), times.end(), Seconds(0));
  if (total.count() <= 0) throw Error(ErrorKind::input, "the schedule has no iteration that takes time");
  std::sort(times.begin(), times.end());
  const auto count = static_cast<double>(times.size());
  result.mean = total / count;
  result.p95 = times[static_cast<std::size_t>(std::ceil(0.95 * count)) - 1];
  result.samples_per_s = samples / total.count();
  result.llm_tokens_per_s = tokens / total.count();
  result.mfu = flop / (total.count() * target.cluster.gpus() * target.cluster.gpu.peak_flop_per_s);
  result.idle_fraction = idle_time / total.count();
  return result;
}

}  // namespace

Target::Target(const std::string& model_name, const std::string& cluster_name, const std::string& plan_file,
               const std::function<void(ClusterSpec&)>& change)
    : model(named_by(plan_file, "model", [&] { return find_model(model_name); })),
      cluster(changed(named_by(plan_file, "cluster", [&] { return find_cluster(cluster_name); }), change)),
      cost(model, cluster),
      executor(cost) {}

ScheduleLimits SchedulerChoice::limits_on(const ClusterSpec& cluster) const {
  ScheduleLimits all = limits;
  if (respect_memory) all.memory = cluster.gpu.usable_memory();
  return all;
}

std::vector<Sample> load_samples(const std::string& file, const PreprocessOptions& options, bool report) {
  Preprocessed data = preprocess(load_records(file), options, file);
  if (report) report_assumptions(data, options);
  if (data.samples.empty())
    throw Error(ErrorKind::input, "no record has one of the modalities asked for", file);
  return std::move(data.samples);
}

std::vector<Batch> make_batches(const std::vector<Sample>& samples, int gbs, int iterations,
                                std::uint64_t seed) {
  BatchStream stream(borrowed(samples), gbs, seed);
  std::vector<Batch> batches(static_cast<std::size_t>(iterations));
  for (Batch& batch : batches) batch = stream.next();
  return batches;
}

ScheduleFile schedule_batches(const Plan& plan, const Target& target, const std::vector<Batch>& batches,
                              const SchedulerChoice& choice, std::uint64_t seed,
                              std::vector<Seconds>* seconds) {
  SchedulingService service(service_input(plan, target, batches, choice),
                            {.seed = seed, .limits = choice.limits_on(target.cluster)});
  ScheduleFile file = empty_schedule(plan, batches, choice, seed);
  RecordedAssignments source(plan, target, &scheduling_cost(target, choice), service, file, seconds);
  Progress progress("scheduling");
  while (source.next()) {
    progress.update(static_cast<std::int64_t>(file.iterations.size()),
                    static_cast<std::int64_t>(batches.size()));
    if (!file.iterations.back().feasible()) break;
  }
  return file;
}

PipelineOrder iteration_order(const Plan& plan, const Target& target, const ScheduledIteration& iteration,
                              const RunOptions& options) {
  return iteration_order(plan, target, iteration.samples, iteration.assignment, options);
}

Evaluation evaluate(const Plan& plan, const Target& target, const ScheduleFile& schedule, int traced,
                    const RunOptions& options) {
  StoredAssignments source(schedule);
  auto evaluation = run_iterations(plan, target, source, schedule.iterations.size(), traced, options);
  if (!evaluation) throw Error(ErrorKind::input, "the schedule ends with an iteration that is infeasible");
  return std::move(*evaluation);
}

ScheduledRun schedule_and_evaluate(const Plan& plan, const Target& target, const std::vector<Batch>& batches,
                                   const SchedulerChoice& choice, std::uint64_t seed, int traced) {
  SchedulingService service(service_input(plan, target, batches, choice),
                            {.seed = seed, .limits = choice.limits_on(target.cluster)});
  ScheduledRun run{empty_schedule(plan, batches, choice, seed), {}};
  // Where the scheduler predicts with what iterations are run with, the run is the measurement.
  RecordedAssignments source(plan, target, choice.cost, service, run.schedule);
  RunOptions options;
  if (choice.cost == nullptr) {
    options.runner = [&](std::size_t k, const Program& program, Detail detail) {
      Timeline timeline = target.executor.run(program, detail);
      if (is_run(run.schedule.iterations[k])) set_makespan(run.schedule.iterations[k], timeline.makespan);
      return timeline;
    };
  }
  run.evaluation = run_iterations(plan, target, source, batches.size(), traced, options);
  return run;
}

std::optional<std::string> out_of_memory(std::span<const Timeline> timelines, const ClusterSpec& cluster) {
  const Bytes usable = cluster.gpu.usable_memory();
  const auto fits = [&](const Timeline& timeline) { return peak_memory(timeline) <= usable; };
  if (std::all_of(timelines.begin(), timelines.end(), fits)) return std::nullopt;
  return fmt::format("out of memory, {}; {:.1f} GiB are usable", describe_fullest_rank(timelines),
                     static_cast<double>(usable.count) * 0x1p-30);
}

void validate(const ScheduleFile& schedule, const Plan& plan, const std::string& file) {
  if (schedule.model != plan.model) {
    throw Error(
        ErrorKind::input,
        fmt::format("expected a schedule of the plan's model '{}', found '{}'", plan.model, schedule.model),
        file);
  }
  for (std::size_t k = 0; k < schedule.iterations.size(); ++k) {
    const ScheduledIteration& iteration = schedule.iterations[k];
    validate(iteration.assignment, plan, iteration.samples.size(), fmt::format("{}: iteration {}", file, k));
  }
}

std::string status_counts(const ScheduleFile& schedule) {
  std::map<ScheduleStatus, int> counts;
  for (const ScheduledIteration& iteration : schedule.iterations) ++counts[iteration.status];
  std::string text;
  for (const auto& [status, count] : counts) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", to_string(status), count);
  }
  return text;
}

double mean_gap(const ScheduleFile& schedule) {
  double sum = 0;
  double bounded = 0;
  for (const ScheduledIteration& iteration : schedule.iterations) {
    if (iteration.bound_kind == BoundKind::none) continue;
    sum += iteration.gap();
    ++bounded;
  }
  return bounded > 0 ? sum / bounded : 0;
}

PlanResult make_plan(const std::string& planner, const Target& target, const std::vector<Sample>& samples,
                     const std::vector<Batch>& batches, int gbs, std::uint64_t seed,
                     const PlanOptions& options, const SearchOptions& search) {
  Progress progress("planning " + planner);
  PlanRequest request{
      target.model, target.cluster,
      target.cost,  target.executor,
      gbs,          samples,
      batches,      seed,
      options,      [&](std::int64_t done, std::int64_t total) { progress.update(done, total); },
      search};
  return make_planner(planner)->plan(request);
}

}  // namespace dflop
