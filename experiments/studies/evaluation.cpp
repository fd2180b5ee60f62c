#include "experiments/studies/evaluation.hpp"

#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "core/error.hpp"
#include "costmodel/analytic/flops.hpp"
#include "costmodel/sample_costs.hpp"
#include "experiments/studies/explain.hpp"

namespace dflop {

Evaluator::Evaluator(const Plan& plan, const Target& target, const Executor& executor, std::size_t iterations,
                     int traced)
    : plan_(plan),
      target_(target),
      executor_(executor),
      iterations_(iterations),
      traced_(static_cast<std::size_t>(traced)) {}

const Timeline& Evaluator::run(std::span<const Sample> samples, const Assignment& assignment,
                               const std::optional<PipelineOrder>& order) {
  Iteration iteration = make_iteration(target_.problem(), plan_, samples, assignment, order);
  iteration.number = result_.timelines.size();
  const Detail detail = iteration.number < traced_ ? Detail::spans : Detail::usage;
  result_.timelines.push_back(executor_.run(iteration, detail));
  if (iteration.number == 0) result_.order = std::move(iteration.order);
  const Timeline& timeline = result_.timelines.back();
  if (timeline.stalls.empty()) add(samples, timeline);
  return timeline;
}

Evaluation Evaluator::take() {
  if (!result_.timelines.empty() && !result_.timelines.back().stalls.empty()) return std::move(result_);
  const Seconds total = std::accumulate(times_.begin(), times_.end(), Seconds(0));
  if (total.count() <= 0) throw Error(ErrorKind::input, "the schedule has no iteration that takes time");
  std::sort(times_.begin(), times_.end());
  const auto count = static_cast<double>(times_.size());
  const ClusterSpec& cluster = target_.cluster;
  result_.mean = total / count;
  result_.p95 = nearest_rank(times_, 0.95);
  result_.samples_per_s = samples_ / total.count();
  result_.llm_tokens_per_s = tokens_ / total.count();
  result_.mfu = flop_ / (total.count() * cluster.peak_flop_per_s());
  result_.idle_fraction = idle_time_ / total.count();
  return std::move(result_);
}

void Evaluator::add(std::span<const Sample> samples, const Timeline& timeline) {
  const Seconds time = timeline.makespan;
  const Work work = total_work(samples);
  times_.push_back(time);
  samples_ += static_cast<double>(samples.size());
  tokens_ += static_cast<double>(work.llm.tokens);
  flop_ += model_flop(target_.model, work.encoder, work.llm, plan_.trained).count;
  idle_time_ += idle_fraction(timeline) * time.count();
  result_.peak_memory = std::max(result_.peak_memory, peak_memory(timeline));
  progress_.update(static_cast<std::int64_t>(times_.size()), static_cast<std::int64_t>(iterations_));
}

Evaluation evaluate(const Plan& plan, const Target& target, const ScheduleFile& schedule, int traced,
                    const Executor& executor, const std::optional<PipelineOrder>& order) {
  Evaluator evaluator(plan, target, executor, schedule.iterations.size(), traced);
  for (const ScheduledIteration& iteration : schedule.iterations) {
    if (!iteration.feasible()) {
      throw Error(ErrorKind::input, "the last iteration of the schedule is infeasible");
    }
    if (!evaluator.run(iteration.samples, iteration.assignment, order).stalls.empty()) break;
  }
  return evaluator.take();
}

namespace {

/// Checks each rank of a mixed cluster against its own GPU.
std::optional<std::string> out_of_own_memory(std::span<const Timeline> timelines,
                                             const ClusterSpec& cluster) {
  for (std::size_t k = 0; k < timelines.size(); ++k) {
    for (const GroupUsage& group : timelines[k].groups) {
      for (int rank = group.first_rank; rank < group.first_rank + group.ranks; ++rank) {
        const GpuSpec& gpu = cluster.gpu_of(rank);
        if (group.peak_memory <= gpu.usable_memory()) continue;
        return fmt::format(
            "out of memory, rank {} ({}, {}) needs {:.1f} GiB in iteration {}; {:.1f} GiB are usable", rank,
            timelines[k].stages[group.stage], gpu.name, in_gib(group.peak_memory), k,
            in_gib(gpu.usable_memory()));
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> out_of_memory(std::span<const Timeline> timelines, const ClusterSpec& cluster) {
  if (cluster.is_mixed()) return out_of_own_memory(timelines, cluster);
  const Bytes usable = cluster.gpu.usable_memory();
  const auto fits = [&](const Timeline& timeline) { return peak_memory(timeline) <= usable; };
  if (std::all_of(timelines.begin(), timelines.end(), fits)) return std::nullopt;
  return fmt::format("out of memory, {}; {:.1f} GiB are usable", describe_fullest_rank(timelines),
                     static_cast<double>(usable.count) * 0x1p-30);
}

}  // namespace dflop
