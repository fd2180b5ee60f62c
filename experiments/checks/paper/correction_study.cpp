#include "experiments/checks/paper/correction_study.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>

#include "core/program/lowering.hpp"
#include "core/support/parallel.hpp"
#include "core/support/random.hpp"
#include "costmodel/sample_costs.hpp"
#include "sim/conditions.hpp"
#include "sim/engine.hpp"
#include "solver/schedulers/schedulers.hpp"

namespace dflop {
namespace {

constexpr std::uint64_t kCorrectionStudyJitterStream = 0x6a697474'00000000;

/// A Laboratory schedules and times iterations of one study.
class Laboratory {
 public:
  explicit Laboratory(const CorrectionStudy& study) : study_(study) {
    scheduler_ = make_scheduler(study.scheduler.name);
    uncorrected_.resize(study.batches.size());
    parallel_for(uncorrected_.size(), [&](std::size_t k) { uncorrected_[k] = assign(k, study.target.cost); });
  }

  /// Returns iteration k with the microbatches that are best according to a cost model.
  Iteration schedule(std::size_t k, const CostModel& cost) const { return iteration(k, assign(k, cost)); }

  Iteration uncorrected(std::size_t k) const { return iteration(k, uncorrected_[k]); }

  /// Returns the time of the iteration according to a cost model, without jitter.
  Seconds predict(const Iteration& iteration, const CostModel& cost) const {
    return executor_.run(iteration, cost, Detail::usage).makespan;
  }

  /// Runs the iteration on the hardware.
  Timeline run(Iteration iteration, const CostModel& hardware, Detail detail) const {
    iteration.costs = price(hardware, iteration);
    if (study_.jitter > 0) {
      Random random(study_.seed, kCorrectionStudyJitterStream + iteration.number);
      add_jitter(iteration.costs, study_.jitter, random);
    }
    return executor_.run(iteration, detail);
  }

  const CorrectionStudy& study() const { return study_; }

 private:
  Assignment assign(std::size_t k, const CostModel& cost) const {
    const Target& target = study_.target;
    return scheduler_
        ->schedule({study_.batches[k], study_.plan, target.model, cost, study_.seed, k,
                    study_.scheduler.limits_on(target.cluster, study_.plan)})
        .assignment;
  }

  Iteration iteration(std::size_t k, Assignment assignment) const {
    Iteration made =
        make_iteration(study_.target.problem(), study_.plan, study_.batches[k], std::move(assignment));
    made.number = k;
    return made;
  }

  const CorrectionStudy& study_;
  SimExecutor executor_;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<Assignment> uncorrected_;  ///< only assignments, because the programs of all iterations would
                                         ///< be large
};

/// Returns the cost model of the hardware in iteration k: base or slow.
const CostModel& hardware_at(const Laboratory& lab, const AnomalousCostModel& slow, const Anomaly& anomaly,
                             std::size_t k) {
  const auto iteration = static_cast<std::int64_t>(k);
  if (iteration >= anomaly.begin && iteration < anomaly.end) return slow;
  return lab.study().target.cost;
}

/// Runs iterations without tracking. Schedules use the target's costs or, if `perfect`, the hardware's own
/// costs.
CorrectionRun run_untracked(const Laboratory& lab, const AnomalousCostModel& slow, const Anomaly& anomaly,
                            bool perfect) {
  CorrectionRun run;
  for (std::size_t k = 0; k < lab.study().batches.size(); ++k) {
    const CostModel& hardware = hardware_at(lab, slow, anomaly, k);
    const bool same = !perfect || &hardware == &lab.study().target.cost;
    const Timeline timeline = same ? lab.run(lab.uncorrected(k), hardware, Detail::usage)
                                   : lab.run(lab.schedule(k, hardware), hardware, Detail::usage);
    run.seconds.push_back(Seconds(timeline.makespan).count());
    run.tracked.push_back(false);
  }
  return run;
}

/// A TrackedRun runs iterations with tracking, either always or when the switch is on.
class TrackedRun {
 public:
  TrackedRun(const Laboratory& lab, const AnomalousCostModel& slow, const Anomaly& anomaly,
             std::optional<SwitchRule> rule)
      : lab_(lab), slow_(slow), anomaly_(anomaly), rule_(rule), adaptive_(rule, lab.study().switching) {}

  CorrectionRun run() {
    for (std::size_t k = 0; k < lab_.study().batches.size(); ++k) step(k);
    const CorrectionSwitch& state = adaptive_.state();
    if (!rule_) run_.cost = lab_.study().tracking_cost;
    if (rule_ && state.measured()) run_.cost = state.cost();
    run_.benefit = state.benefit();
    run_.learned = adaptive_.learned().fits();
    return std::move(run_);
  }

 private:
  void step(std::size_t k) {
    const CorrectionStudy& study = lab_.study();
    const CostModel& base = study.target.cost;
    const Iteration own = schedule(k, adaptive_.in_use());
    const Seconds predicted =
        rule_ ? lab_.predict(own, CorrectedCostModel(base, adaptive_.in_use())) : Seconds(1);
    const bool tracks = adaptive_.tracks();
    const Timeline timeline =
        lab_.run(own, hardware_at(lab_, slow_, anomaly_, k), tracks ? Detail::spans : Detail::usage);
    Seconds actual = timeline.makespan;
    if (tracks) {
      actual /= 1 - study.tracking_cost;
      adaptive_.learn(timeline, base, study.plan, study.batches[k], own.assignment);
    }
    run_.seconds.push_back(actual.count());
    run_.tracked.push_back(tracks && !adaptive_.rests());
    adaptive_.observe(actual, predicted, adaptive_.compares() ? benefit(k, own) : 0.0);
  }

  Iteration schedule(std::size_t k, const Correction& correction) const {
    if (correction.fits().empty()) return lab_.uncorrected(k);
    return lab_.schedule(k, CorrectedCostModel(lab_.study().target.cost, correction));
  }

  /// Returns the gain from the corrections in use, relative to the corrections that would be in use without
  /// tracking. Both are judged by everything learned so far.
  double benefit(std::size_t k, const Iteration& own) const {
    const CorrectedCostModel corrected(lab_.study().target.cost, adaptive_.learned());
    const Iteration other = schedule(k, adaptive_.kept());
    return 1 - lab_.predict(own, corrected) / lab_.predict(other, corrected);
  }

  const Laboratory& lab_;
  const AnomalousCostModel& slow_;
  const Anomaly& anomaly_;
  std::optional<SwitchRule> rule_;
  AdaptiveCorrection adaptive_;
  CorrectionRun run_;
};

/// A Way is one way to run all iterations of a cell: with run_untracked() or as a TrackedRun.
struct Way {
  CorrectionRun CorrectionCell::*run;
  bool tracked = false;
  bool perfect = false;
  std::optional<SwitchRule> rule = {};
};
constexpr std::array<Way, 5> kWays = {
    {{.run = &CorrectionCell::off},
     {.run = &CorrectionCell::perfect, .perfect = true},
     {.run = &CorrectionCell::on, .tracked = true},
     {.run = &CorrectionCell::published, .tracked = true, .rule = SwitchRule::published},
     {.run = &CorrectionCell::keep, .tracked = true, .rule = SwitchRule::keep}}};

}  // namespace

std::string CorrectionRun::story() const {
  std::string text;
  for (std::size_t k = 0; k < tracked.size(); ++k) {
    if (k == 0 ? !tracked[k] : tracked[k] == tracked[k - 1]) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", tracked[k] ? "on" : "off", k);
  }
  return text.empty() ? "off" : text;
}

std::int64_t CorrectionRun::since() const {
  std::size_t k = tracked.size();
  while (k > 1 && tracked[k - 1] == tracked[k - 2]) --k;
  return static_cast<std::int64_t>(k) - 1;
}

double gain(const CorrectionRun& run, const CorrectionRun& other, std::size_t begin, std::size_t end) {
  const auto total = [&](const CorrectionRun& r) {
    return std::accumulate(r.seconds.begin() + static_cast<std::ptrdiff_t>(begin),
                           r.seconds.begin() + static_cast<std::ptrdiff_t>(end), 0.0);
  };
  return total(other) / total(run) - 1;
}

std::vector<CorrectionCell> run_correction_study(
    const CorrectionStudy& study, const std::vector<Anomaly>& anomalies,
    const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const Laboratory lab(study);
  Batch samples;
  for (const Batch& batch : study.batches) samples.insert(samples.end(), batch.begin(), batch.end());
  std::vector<CorrectionCell> cells(anomalies.size());
  std::vector<AnomalousCostModel> slow;
  for (std::size_t c = 0; c < cells.size(); ++c) {
    slow.emplace_back(study.target.cost, study.plan, study.target.model, samples, anomalies[c], study.seed);
    cells[c].anomaly = anomalies[c];
    cells[c].fraction = slow[c].fraction();
  }
  std::mutex mutex;
  std::int64_t done = 0;
  parallel_for(kWays.size() * cells.size(), [&](std::size_t i) {
    CorrectionCell& cell = cells[i / kWays.size()];
    const AnomalousCostModel& hardware = slow[i / kWays.size()];
    const Way& way = kWays[i % kWays.size()];
    cell.*way.run = way.tracked ? TrackedRun(lab, hardware, cell.anomaly, way.rule).run()
                                : run_untracked(lab, hardware, cell.anomaly, way.perfect);
    if (!progress) return;
    const std::lock_guard lock(mutex);
    progress(++done, static_cast<std::int64_t>(kWays.size() * cells.size()));
  });
  return cells;
}

}  // namespace dflop
