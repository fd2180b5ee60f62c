#include <fmt/format.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <utility>

#include "core/support/parallel.hpp"
#include "costmodel/analytic/flops.hpp"
#include "experiments/presets/presets.hpp"
#include "experiments/studies/data.hpp"
#include "experiments/studies/headroom.hpp"
#include "experiments/sweep/spec.hpp"
#include "experiments/trust/roles.hpp"
#include "solver/plan_problem/trial.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "traces/files/plan.hpp"
#include "traces/files/schedule.hpp"

namespace dflop {
namespace {

using Clock = std::chrono::steady_clock;

std::uint64_t seed_of(const SweepRow& cell) {
  return static_cast<std::uint64_t>(cell.whole(Axis::seed));
}

std::string cluster_name(const SweepRow& cell) {
  return with_nodes(cell.text(Axis::cluster), cell.whole(Axis::nodes));
}

using Samples = std::shared_ptr<const std::vector<Sample>>;

/// SampleSets loads samples and keeps the most recently used ones. Cells have many more combinations than
/// there are data sets.
class SampleSets {
 public:
  /// Returns samples. May be called from any thread. @throws Error as load_samples()
  Samples of(const SweepRow& cell) {
    const Key key{cell[Axis::data], cell[Axis::modalities], cell[Axis::model], cell[Axis::options],
                  cell[Axis::seed]};
    std::packaged_task<Samples()> load([&] {
      const PreprocessOptions options = sweep_preprocess_options(cell, find_model(cell.text(Axis::model)));
      return std::make_shared<std::vector<Sample>>(load_samples(cell.text(Axis::data), options, is_new(key)));
    });
    const auto [loaded, is_first] = find_or_add(key, load);
    if (is_first) load();
    return loaded.get();
  }

 private:
  using Key = std::array<Cell, 5>;
  static constexpr std::size_t kMaxKept = 8;

  /// Returns the samples of a key, or adds `load` for the caller to run. Later callers wait for the first
  /// one.
  std::pair<std::shared_future<Samples>, bool> find_or_add(const Key& key,
                                                           std::packaged_task<Samples()>& load) {
    const std::lock_guard lock(mutex_);
    for (const auto& [of, samples] : kept_) {
      if (of == key) return {samples, false};
    }
    kept_.emplace_front(key, load.get_future().share());
    if (kept_.size() > kMaxKept) kept_.pop_back();
    return {kept_.front().second, true};
  }

  /// Returns whether these samples were never loaded, regardless of the seed. One note about the assumptions
  /// is enough.
  bool is_new(Key key) {
    key.back() = {};
    const std::lock_guard lock(mutex_);
    return noted_.insert(key).second;
  }

  std::mutex mutex_;
  std::deque<std::pair<Key, std::shared_future<Samples>>> kept_;
  std::set<Key> noted_;
};

/// A Planned holds what the cells of a group share.
struct Planned {
  Planned(const SweepRow& cell, Samples all)
      : samples(std::move(all)),
        target(cell.text(Axis::model), cluster_name(cell), "", sweep_cluster_change(cell)),
        batches(make_batches(*samples, static_cast<int>(cell.whole(Axis::gbs)),
                             static_cast<int>(cell.whole(Axis::iterations)), seed_of(cell))) {
    const auto start = Clock::now();
    result = make_plan(
        cell.text(Axis::planner),
        {target, *samples, batches, static_cast<int>(cell.whole(Axis::gbs)), seed_of(cell),
         sweep_plan_options(cell), sweep_search_options(cell, &target.model), sweep_best_parts(cell)});
    seconds = Clock::now() - start;
  }

  Samples samples;
  Target target;
  std::vector<Batch> batches;
  PlanResult result;
  Seconds seconds{0};  ///< measured
};

/// Computes encoder FLOP over LLM FLOP of all samples, and the coefficient of variation of a sample's FLOP.
/// These describe how uneven the data is, independently of the plan.
void describe_data(const Planned& planned, SweepRow& cell) {
  double encoder = 0;
  double llm = 0;
  double squares = 0;
  double count = 0;
  for (const Batch& batch : planned.batches) {
    for (const Sample& sample : batch) {
      const double encoder_part = encoder_flop(planned.target.model, sample.encoder()).count;
      const double llm_part = llm_flop(planned.target.model, sample.llm()).count;
      encoder += encoder_part;
      llm += llm_part;
      squares += (encoder_part + llm_part) * (encoder_part + llm_part);
      ++count;
    }
  }
  const double mean = (encoder + llm) / count;
  cell[Measure::flop_ratio] = encoder / llm;
  cell[Measure::heterogeneity] = std::sqrt(std::max(0.0, squares / count - mean * mean)) / mean;
}

/// A RepeatExecutor runs iterations as part of a later repeat, so that they get their own random draws.
class RepeatExecutor final : public Executor {
 public:
  RepeatExecutor(const Executor& executor, std::uint64_t first) : executor_(executor), first_(first) {}

  Timeline run(const Iteration& iteration, Detail detail) const override {
    Iteration later = iteration;
    later.number += first_;
    return executor_.run(later, detail);
  }

 private:
  const Executor& executor_;
  std::uint64_t first_;
};

/// Evaluates a schedule as many times as the conditions require, each time with its own jitter. Means are
/// over all runs.
Evaluation evaluate_repeatedly(const Plan& plan, const Target& target, const ScheduleFile& schedule,
                               const WhatIf& what_if) {
  const WhatIfExecutor executor(what_if, target.cluster);
  Evaluation all = evaluate(plan, target, schedule, 0, executor);
  if (what_if.repeat == 1 || !all.timelines.back().stalls.empty()) return all;
  const std::size_t iterations = schedule.iterations.size();
  std::vector<Evaluation> runs(static_cast<std::size_t>(what_if.repeat));
  parallel_for(runs.size(), [&](std::size_t r) {
    runs[r] = evaluate(plan, target, schedule, 0, RepeatExecutor(executor, r * iterations));
  });
  std::vector<Seconds> times;
  std::vector<double> idle;
  for (const Evaluation& run : runs) {
    for (const Timeline& timeline : run.timelines) {
      times.push_back(time_to_end(timeline));
      idle.push_back(idle_fraction(timeline));
    }
  }
  take_means(all, std::move(times), idle);
  return all;
}

/// Simulates each iteration under the conditions of the cell, which are unknown to the planner and the
/// scheduler.
Evaluation simulate_cell(const SweepRow& cell, const Plan& plan, const ScheduleFile& schedule) {
  WhatIf what_if = sweep_conditions(cell);
  const Target target(cell.text(Axis::model), cluster_name(cell), "", [&](ClusterSpec& cluster) {
    sweep_cluster_change(cell)(cluster);
    what_if.apply(cluster);
  });
  if (what_if.role) {
    const RoleRuns runs = run_roles(plan, target, schedule, what_if);
    if (what_if.repeat == 1) return runs.result();
    what_if.gpu = runs.worst_gpu;
  }
  return evaluate_repeatedly(plan, target, schedule, what_if);
}

void set_infeasible(SweepRow& cell, const std::string& reason) {
  cell[Measure::status] = "infeasible";
  cell[Measure::reason] = reason;
}

void set_result(SweepRow& cell, const Evaluation& result, const ClusterSpec& cluster) {
  const Timeline& last = result.timelines.back();
  if (!last.stalls.empty()) {
    return set_infeasible(cell,
                          fmt::format("iteration {} does not finish: {} of {} tp groups stall",
                                      result.timelines.size() - 1, last.stalls.size(), last.groups.size()));
  }
  cell[Measure::peak_memory_bytes] = result.peak_memory.count;
  if (const auto problem = out_of_memory(result.timelines, cluster)) return set_infeasible(cell, *problem);
  cell[Measure::status] = "ok";
  cell[Measure::iteration_s_mean] = result.mean.count();
  cell[Measure::iteration_s_p95] = result.p95.count();
  cell[Measure::samples_per_s] = result.samples_per_s;
  cell[Measure::llm_tokens_per_s] = result.llm_tokens_per_s;
  cell[Measure::mfu] = result.mfu;
  cell[Measure::idle_fraction] = result.idle_fraction;
}

/// Marks a cell if its plan runs out of memory on a further batch, as compare does.
void mark_overrun(const Planned& planned, const Plan& plan, std::string_view scheduler, SweepRow& cell) {
  const Headroom headroom =
      estimate_headroom(plan, planned.target, *planned.samples, std::string(filler_for(scheduler)),
                        plan.respect_memory, seed_of(cell));
  if (headroom.holds_all()) return;
  cell[Measure::plan] = marked(plan, false);
  cell[Measure::reason] =
      fmt::format("may not fit: a further batch needs {:.1f} GiB, {:.1f} are usable",
                  in_gib(std::max(headroom.most, headroom.longest)), in_gib(headroom.usable));
}

void run_cell(const Planned& planned, SweepRow& cell) {
  describe_data(planned, cell);
  cell[Measure::planning_s] = planned.seconds.count();
  if (!planned.result.plan) return set_infeasible(cell, planned.result.infeasible_reason);
  const Plan& plan = *planned.result.plan;
  cell[Measure::plan] = marked(plan);
  const auto start = Clock::now();
  std::vector<Seconds> seconds;
  const SchedulerChoice choice = sweep_scheduler(cell);
  Plan as_run = plan;
  as_run.respect_memory = choice.respects_memory(plan);
  cell[Measure::plan_json] = to_json(as_run);
  const ScheduleFile schedule =
      schedule_batches(plan, planned.target, planned.batches, choice, seed_of(cell), &seconds);
  const ScheduledIteration& last = schedule.iterations.back();
  if (!last.feasible()) return set_infeasible(cell, last.reason);
  cell[Measure::schedule_objective] = std::string(to_string(last.objective));
  cell[Measure::schedule_gap] = mean_gap(schedule);
  cell[Measure::schedule_status] = status_counts(schedule);
  const Seconds total = std::accumulate(seconds.begin(), seconds.end(), Seconds(0));
  cell[Measure::scheduling_s] = total.count() / static_cast<double>(seconds.size());
  set_result(cell, simulate_cell(cell, plan, schedule), planned.target.cluster);
  cell[Measure::wall_s] = Seconds(Clock::now() - start).count();
  if (cell.has_status("ok")) mark_overrun(planned, as_run, choice.name, cell);
}

/// Returns the cell after `run`; if that throws, the cell as failed.
template <typename Run>
SweepRow attempted(SweepRow cell, const Run& run) {
  const SweepRow fresh = cell;
  try {
    run(cell);
  } catch (const std::exception& problem) {
    cell = fresh;
    cell[Measure::status] = "failed";
    cell[Measure::reason] = problem.what();
  }
  return cell;
}

void run_group(const PlanGroup& group, SampleSets& samples,
               const std::function<void(const SweepRow&)>& done) {
  std::unique_ptr<Planned> planned;
  const SweepRow outcome = attempted(group.front(), [&](const SweepRow& cell) {
    planned = std::make_unique<Planned>(cell, samples.of(cell));
  });
  parallel_for(group.size(), [&](std::size_t i) {
    SweepRow cell = group[i];
    if (planned) {
      cell = attempted(cell, [&](SweepRow& c) { run_cell(*planned, c); });
    } else {
      cell[Measure::status] = outcome[Measure::status];
      cell[Measure::reason] = outcome[Measure::reason];
    }
    done(cell);
  });
}

}  // namespace

void run_sweep(const std::vector<PlanGroup>& groups, const std::function<void(const SweepRow&)>& done) {
  SampleSets samples;
  parallel_for(groups.size(), [&](std::size_t g) {
    // Isolated, because a thread that waits inside one group's loops must not begin another group in the
    // meantime: its time would count for the first group, and it would hold the memory of both.
    tbb::this_task_arena::isolate([&] { run_group(groups[g], samples, done); });
  });
}

}  // namespace dflop
