#include "experiments/checks/paper/cell.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "costmodel/analytic/flops.hpp"
#include "experiments/checks/paper/correction_study.hpp"
#include "experiments/checks/paper/habits.hpp"
#include "experiments/checks/paper/hand_set.hpp"
#include "experiments/studies/batches.hpp"
#include "experiments/studies/comparison.hpp"
#include "experiments/studies/data.hpp"
#include "experiments/studies/evaluation.hpp"
#include "experiments/studies/planning.hpp"
#include "experiments/studies/scheduling.hpp"
#include "experiments/studies/target.hpp"

namespace dflop {
namespace {

constexpr std::uint64_t kStudySeed = 1;

/// StudyRun holds the common setup of all kinds of cells.
struct StudyRun {
  StudyRun(const StudyCell& cell, const Setting& setting, const std::string& folder)
      : target(cell.model, fmt::format("{}:{}", kStudyCluster, cell.nodes)) {
    PreprocessOptions options;
    options.rule = target.model.preprocess;
    options.max_tokens = target.model.max_tokens;
    options.seed = kStudySeed;
    if (!cell.modalities.empty()) options.modalities = cell.modalities;
    input.samples = load_samples(folder + "/" + cell.data, options, false);
    input.batches = make_batches(input.samples, cell.gbs, cell.iterations, kStudySeed);
    input.further = batches_to_fit(input.samples, cell.gbs, kStudySeed);
    input.gbs = cell.gbs;
    input.seed = kStudySeed;
    input.options = setting.options;
    input.search = open_choices(setting);
    bin_order = setting.bin_order;
  }

  PlanResult planned() const {
    return make_plan("dflop", {target, input.samples, input.batches, input.gbs, input.seed, input.options});
  }

  /// Returns a scheduler with the bin order of the setting.
  SchedulerChoice scheduler(const std::string& name) const {
    SchedulerChoice choice{name};
    choice.limits.bin_order = bin_order;
    return choice;
  }

  Target target;
  ComparisonInput input;
  std::optional<BinOrder> bin_order;
};

/// Describes the data as a row: encoder FLOP over LLM FLOP of all samples, and the coefficient of variation
/// of a sample's FLOP.
FigureRow data_row(const StudyRun& run) {
  double encoder = 0;
  double llm = 0;
  double squares = 0;
  for (const Sample& sample : run.input.samples) {
    const double of_encoder = encoder_flop(run.target.model, sample.encoder()).count;
    const double of_llm = llm_flop(run.target.model, sample.llm()).count;
    encoder += of_encoder;
    llm += of_llm;
    squares += (of_encoder + of_llm) * (of_encoder + of_llm);
  }
  const auto count = static_cast<double>(run.input.samples.size());
  const double mean = (encoder + llm) / count;
  const double variance = std::max(0.0, squares / count - mean * mean);
  return {"data",
          fmt::format("{:.0f} samples", count),
          {{"flop_ratio", encoder / llm}, {"heterogeneity", std::sqrt(variance) / mean}}};
}

/// Returns each tp group's FLOP per second and GPU over a traced iteration, in increasing order.
/// Recomputation does not count.
std::vector<double> group_throughputs(const ModelSpec& model, const Timeline& timeline) {
  std::map<std::int32_t, double> flop;  // by the first rank of the group
  for (const Span& span : timeline.spans) {
    if (span.op != Op::forward || span.work < 0) continue;
    const Stage& stage = timeline.stage_shapes[span.stage];
    const StageFlop of = stage_flop(model, stage, timeline.works[static_cast<std::size_t>(span.work)]);
    flop[span.rank] += 3 * of.all().count - of.first.count;
  }
  std::vector<double> throughputs;
  for (const GroupUsage& group : timeline.groups) {
    throughputs.push_back(flop[group.first_rank] / group.ranks / Seconds(timeline.makespan).count());
  }
  std::ranges::sort(throughputs);
  return throughputs;
}

/// Adds mean, coefficient of variation and the five numbers of a box plot.
void add_throughputs(const std::vector<double>& rising, FigureRow& row) {
  const auto count = static_cast<double>(rising.size());
  const double mean = std::accumulate(rising.begin(), rising.end(), 0.0) / count;
  double squares = 0;
  for (const double value : rising) squares += (value - mean) * (value - mean);
  const auto quantile = [&](double part) {
    return rising[static_cast<std::size_t>(std::llround(part * (count - 1)))];
  };
  row.figures["gpu_flop_per_s_mean"] = mean;
  row.figures["gpu_flop_per_s_cv"] = mean > 0 ? std::sqrt(squares / count) / mean : 0;
  row.figures["gpu_flop_per_s_least"] = rising.front();
  row.figures["gpu_flop_per_s_q1"] = quantile(0.25);
  row.figures["gpu_flop_per_s_median"] = quantile(0.5);
  row.figures["gpu_flop_per_s_q3"] = quantile(0.75);
  row.figures["gpu_flop_per_s_most"] = rising.back();
}

void add_evaluation(const Evaluation& evaluation, FigureRow& row) {
  RankShares shares;
  for (const Timeline& timeline : evaluation.timelines) shares += rank_shares(timeline);
  shares = shares / static_cast<double>(evaluation.timelines.size());
  row.figures["iteration_s"] = evaluation.mean.count();
  row.figures["samples_per_s"] = evaluation.samples_per_s;
  row.figures["mfu"] = evaluation.mfu;
  row.figures["idle_fraction"] = evaluation.idle_fraction;
  row.figures["busy_s"] = shares.busy.count();
  row.figures["imbalance_s"] = shares.imbalance.count();
  row.figures["bubble_s"] = shares.bubble.count();
  row.figures["communication_s"] = shares.communication.count();
  row.figures["peak_memory_bytes"] = static_cast<double>(evaluation.peak_memory.count);
}

FigureRow system_row(const System& system, const ModelSpec& model) {
  FigureRow row{system.name, system.planned.infeasible_reason};
  row.figures["planning_s"] = system.planning.count();
  if (!system.evaluation) return row;
  row.detail = describe(*system.planned.plan);
  add_evaluation(*system.evaluation, row);
  add_throughputs(group_throughputs(model, system.evaluation->timelines.front()), row);
  row.figures["schedule_gap"] = mean_gap(system.schedule);
  return row;
}

std::vector<FigureRow> run_system_cell(const StudyRun& run) {
  std::vector<System> systems = systems_to_compare(
      {"pytorch", "megatron", "dflop-optimizer", "dflop", "dflop-paper-optimizer", "dflop-paper"},
      run.scheduler("ilp"), run.input.search);
  run_systems(systems, run.target, run.input);
  for (const std::string_view name : hand_set_names()) {
    systems.push_back(run_hand_set(name, run.target, run.input));
  }
  const auto is_hand_set = [](const System& system) { return system.name.ends_with("-hand"); };
  std::stable_partition(systems.begin(), systems.end(), is_hand_set);
  std::vector<FigureRow> rows = {data_row(run)};
  for (const System& system : systems) rows.push_back(system_row(system, run.target.model));
  return rows;
}

/// The baseline is tuned like a current training stack under every setting, apart from its habit.
std::vector<FigureRow> run_habit_cell(const StudyRun& run) {
  const ModelSpec& model = run.target.model;
  std::vector<System> systems =
      systems_to_compare({"dflop", "dflop-paper"}, run.scheduler("ilp"), run.input.search);
  run_systems(systems, run.target, run.input);
  std::vector<FigureRow> rows = {data_row(run)};
  for (const System& system : systems) rows.push_back(system_row(system, model));
  ComparisonInput tuned = run.input;
  tuned.options = find_setting("tuned").options;
  tuned.search = open_choices(find_setting("tuned"));
  for (const Habit& habit : habits()) {
    rows.push_back(system_row(run_habit(habit, run.target, tuned), model));
    rows.back().detail += fmt::format("{}{}", rows.back().detail.empty() ? "" : "; ", habit.what);
  }
  return rows;
}

/// Returns the schedulers of a study: the published one, with its time limit, and all others.
std::vector<SchedulerChoice> studied_schedulers(const StudyRun& run) {
  SchedulerChoice ilp = run.scheduler("ilp");
  ilp.limits.time_limit = Seconds(1);
  ilp.limits.objective = Objective::published;
  SchedulerChoice lpt = run.scheduler("lpt");
  lpt.limits.objective = Objective::published;
  SchedulerChoice local = run.scheduler("local-search");
  local.limits.objective = Objective::published;
  return {SchedulerChoice{"random"}, lpt, local, ilp};
}

std::vector<FigureRow> run_scheduler_cell(const StudyRun& run) {
  const PlanResult planned = run.planned();
  if (!planned.plan) return {{"plan", planned.infeasible_reason}};
  std::vector<FigureRow> rows;
  for (const SchedulerChoice& choice : studied_schedulers(run)) {
    std::vector<Seconds> seconds;
    const ScheduleFile schedule =
        schedule_batches(*planned.plan, run.target, run.input.batches, choice, run.input.seed, &seconds);
    FigureRow row{choice.name, fmt::format("{}; {}", describe(*planned.plan), status_counts(schedule))};
    row.figures["schedule_gap"] = mean_gap(schedule);
    row.figures["scheduling_s"] = std::accumulate(seconds.begin(), seconds.end(), Seconds(0)).count() /
                                  static_cast<double>(seconds.size());
    add_evaluation(evaluate(*planned.plan, run.target, schedule, 0, run.target.executor), row);
    rows.push_back(std::move(row));
  }
  return rows;
}

/// Returns the anomalies that the published statements are about, and additional ones.
std::vector<Anomaly> studied_anomalies() {
  std::vector<Anomaly> anomalies;
  for (const double fraction : {0.01, 0.03, 0.05}) {
    for (const double latency : {0.25, 0.5, 1.0}) {
      anomalies.emplace_back();
      anomalies.back().fraction = fraction;
      anomalies.back().latency = latency;
    }
  }
  return anomalies;
}

std::vector<FigureRow> run_correction_cell(const StudyRun& run) {
  const PlanResult planned = run.planned();
  if (!planned.plan) return {{"plan", planned.infeasible_reason}};
  constexpr double kTrackingCost = 0.04;  // as published
  constexpr double kJitter = 0.02;
  const CorrectionStudy study{*planned.plan,  run.target,    run.input.batches, SchedulerChoice{"lpt"},
                              run.input.seed, kTrackingCost, kJitter,           {}};
  std::vector<FigureRow> rows;
  for (const CorrectionCell& cell : run_correction_study(study, studied_anomalies(), {})) {
    FigureRow row{
        fmt::format("{:.0f} % slow by {:.0f} %", 100 * cell.anomaly.fraction, 100 * cell.anomaly.latency),
        fmt::format("{}; tracking {}", describe(*planned.plan), cell.published.story())};
    const std::size_t count = cell.off.seconds.size();
    row.figures["correction_gain"] = gain(cell.published, cell.off, 0, count);
    row.figures["net_gain"] = gain(cell.on, cell.off, count / 2, count);
    row.figures["ends_tracking"] = cell.published.tracked.back() ? 1 : 0;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::span<const FigureColumn> figure_columns() {
  static constexpr FigureColumn kColumns[] = {
      {"iteration_s", "s/iter", 3},
      {"samples_per_s", "samples/s", 2},
      {"mfu", "MFU %", 1, 100},
      {"idle_fraction", "idle %", 1, 100},
      {"busy_s", "busy s", 2},
      {"imbalance_s", "imbalance s", 2},
      {"bubble_s", "bubble s", 2},
      {"communication_s", "comm s", 2},
      {"peak_memory_bytes", "peak GiB", 1, 0x1p-30},
      {"schedule_gap", "gap %", 2, 100},
      {"gpu_flop_per_s_mean", "TFLOP/s a GPU", 1, 1e-12},
      {"gpu_flop_per_s_cv", "its CV", 3},
      {"gpu_flop_per_s_least", "min", 1, 1e-12},
      {"gpu_flop_per_s_q1", "quarter", 1, 1e-12},
      {"gpu_flop_per_s_median", "median", 1, 1e-12},
      {"gpu_flop_per_s_q3", "three quarters", 1, 1e-12},
      {"gpu_flop_per_s_most", "max", 1, 1e-12},
      {"flop_ratio", "E/L FLOP", 3},
      {"heterogeneity", "CV of samples", 3},
      {"correction_gain", "gain %", 2, 100},
      {"net_gain", "net gain %", 2, 100},
      {"ends_tracking", "on at the end"},
      {"planning_s", "planning s, measured", 3},
      {"scheduling_s", "scheduling s, measured", 4},
  };
  return kColumns;
}

std::optional<double> FigureRow::find(std::string_view key) const {
  const auto figure = figures.find(key);
  return figure == figures.end() ? std::nullopt : std::optional(figure->second);
}

std::vector<FigureRow> run_cell(const StudyCell& cell, const Setting& setting, const std::string& folder) {
  const StudyRun run(cell, setting, folder);
  switch (cell.kind) {
    case StudyCellKind::systems:
      return run_system_cell(run);
    case StudyCellKind::schedulers:
      return run_scheduler_cell(run);
    case StudyCellKind::correction:
      return run_correction_cell(run);
    case StudyCellKind::habits:
      return run_habit_cell(run);
  }
  return {};
}

}  // namespace dflop
