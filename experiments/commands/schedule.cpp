// dflop schedule distributes the samples of global batches over microbatches.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "core/refuse.hpp"
#include "costmodel/correction/corrected.hpp"
#include "experiments/cli/command.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/options/batch_options.hpp"
#include "experiments/options/conditions.hpp"
#include "experiments/options/data_options.hpp"
#include "experiments/options/profile_options.hpp"
#include "experiments/options/provenance_options.hpp"
#include "experiments/options/scheduler_options.hpp"
#include "experiments/options/shared_options.hpp"
#include "experiments/studies/batches.hpp"
#include "experiments/studies/made_by.hpp"
#include "experiments/studies/named_profile.hpp"
#include "experiments/studies/plan_files.hpp"
#include "experiments/studies/scheduling.hpp"
#include "experiments/studies/target.hpp"
#include "experiments/trust/assumptions.hpp"
#include "experiments/trust/schedule_check.hpp"
#include "solver/schedulers/methods.hpp"
#include "traces/files/correction.hpp"
#include "traces/files/plan.hpp"
#include "traces/files/schedule.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

Table schedule_table(const ScheduleFile& schedule) {
  Table table;
  table.columns = {{"iteration", "iteration"}, {"samples", "samples"},    {"objective", "objective"},
                   {"c_max_s", "C_max s", 4},  {"bound_s", "bound s", 4}, {"bound_kind", "kind of bound"},
                   {"gap", "gap %", 2, 100},   {"status", "status"}};
  for (std::size_t k = 0; k < schedule.iterations.size(); ++k) {
    const ScheduledIteration& iteration = schedule.iterations[k];
    const bool bounded = iteration.bound_kind != BoundKind::none;
    table.rows.push_back({k, iteration.samples.size(), to_string(iteration.objective), iteration.value,
                          bounded ? Cell(iteration.bound) : Cell(), to_string(iteration.bound_kind),
                          bounded ? Cell(iteration.gap()) : Cell(), to_string(iteration.status)});
  }
  return table;
}

/// Warns if the schedules minimize another objective than the plan needs: they may be proven optimal and
/// still be slow.
void report_objective(const ScheduleFile& schedule, const SchedulerChoice& choice, const Plan& plan) {
  const Objective objective = schedule.iterations.back().objective;
  const Method& method = find_method(choice.name);
  if (objective == Objective::makespan && method.minimizes && method.find_makespan == nullptr) {
    say("dflop: note: {} balances bins; unlike auto, it has no search for the makespan\n", method.name);
  }
  if (!plan.objective || *plan.objective == objective) return;
  say("dflop: note: these microbatches minimize '{}', but the plan was made for '{}' (--objective)\n",
      to_string(objective), to_string(*plan.objective));
}

/// Reports statistics over iterations on standard error, because they contain measured times.
void report(const ScheduleFile& schedule, const std::vector<Seconds>& seconds) {
  const auto count = static_cast<double>(seconds.size());
  Seconds objective(0);
  double worst = 0;
  int bounded = 0;
  for (const ScheduledIteration& iteration : schedule.iterations) {
    objective += iteration.value;
    worst = std::max(worst, iteration.gap());
    bounded += iteration.bound_kind == BoundKind::none ? 0 : 1;
  }
  const Seconds total = std::accumulate(seconds.begin(), seconds.end(), Seconds(0));
  const std::string gap = bounded > 0 ? fmt::format("gap {:.3f} % (mean), {:.3f} % at most",
                                                    100 * mean_gap(schedule), 100 * worst)
                                      : "no bound";
  say("dflop: objective '{}' {:.4f} s (mean), {}; {}\n", to_string(schedule.iterations.back().objective),
      objective.count() / count, gap, status_counts(schedule));
  say("dflop: scheduled in {:.1f} ms an iteration (mean), {:.1f} ms at most\n", 1e3 * total.count() / count,
      1e3 * std::max_element(seconds.begin(), seconds.end())->count());
}

/// Reports why schedules are not from the requested method: each reason once, with the first iteration that
/// has it.
void report_reasons(const ScheduleFile& schedule) {
  std::set<std::string> told;
  for (std::size_t k = 0; k < schedule.iterations.size(); ++k) {
    const ScheduledIteration& iteration = schedule.iterations[k];
    if (iteration.reason.empty() || !told.insert(iteration.reason).second) continue;
    say("dflop: {}: iteration {}: {}\n", to_string(iteration.status), k, iteration.reason);
  }
}

/// Reads the correction that runs of the plan's model on its cluster have learned; empty if no file is given.
Correction read_correction(const Values& values, const Plan& plan) {
  const std::optional<std::string> path = read_text(values, "correction");
  if (!path) return Correction();
  CorrectionFile file = parse_correction(read_text_file(*path), *path);
  const auto require = [&](const char* key, const std::string& found, const std::string& expected) {
    if (found == expected) return;
    refuse_input(*path, "{}: expected the plan's '{}', found '{}'", key, expected, found);
  };
  require("model", file.model, plan.model);
  require("cluster", file.cluster, plan.cluster);
  return Correction(std::move(file.fits));
}

int run_schedule(const Values& values) {
  const Format format = read_format(values);
  const auto out = read_output(values, "out");
  SchedulerChoice choice = read_scheduler(values);
  const std::uint64_t seed = read_seed(values);
  const auto plan_path = values["plan"].as<std::string>();
  const std::string plan_text = read_text_file(plan_path);
  Plan plan = parse_plan(plan_text, plan_path);
  plan.gbs = read_optional_integer<int>(values, "gbs", plan.bins(), kMaxGbs).value_or(plan.gbs);
  if (plan.gbs > kMaxGbs)
    refuse_input(plan_path, "key 'gbs': expected at most {}, found {}", kMaxGbs, plan.gbs);
  const int iterations = read_iterations(values, plan.gbs);
  const OutlierDelay delay = read_delay(values, plan.gbs, &plan);
  const std::optional<NamedProfile> profile = read_profile(values);
  if (profile) refuse_given(values, link_option_names(), kMeasuredLinks);
  const Target target(plan.model, plan.cluster, plan_path, read_link_changes(values),
                      profile ? &*profile : nullptr);
  choose_for_objective(choice, values, plan);
  const std::optional<Provenance> plan_made_by = parse_provenance(plan_text, plan_path);
  if (!profile) note_profile_of(plan_path, plan_made_by);
  note_changed_files(plan_path, plan_made_by, target);
  note_gpu_types(target.cluster);
  validate(plan, target.model, target.cluster, plan_path);
  note_trained(plan.trained, target.model);
  if (profile) require_measured(*profile, plan, target.model);
  const Correction correction = read_correction(values, plan);
  const CorrectedCostModel corrected(target.cost, correction);
  if (!correction.fits().empty()) choice.cost = &corrected;
  Provenance made_by = made_here(values, target);
  made_by.plan = origin_of(plan, plan_path);
  made_by.gbs = plan.gbs;
  const std::vector<Sample> samples =
      read_samples(values, target.model, seed, "data", &made_by.data.emplace(), false);
  note_other_cut(plan_path, plan_text, made_by.data->cut);
  const std::vector<Batch> batches =
      make_batches({samples, plan.gbs, iterations, seed, delay, target.model}, *made_by.data);

  std::vector<Seconds> seconds;
  const std::optional<std::string> bins = read_text(values, "bins");
  if (bins) {
    if (!correction.fits().empty())
      refuse_option("bins",
                    "cannot be combined with '--correction': bins are rated by the plan's cost "
                    "model");
    refuse_given(values,
                 {"scheduler-command", "bin-order", "token-cap", "steps", "node-budget", "time-limit"},
                 "applies only to schedulers, which '--bins' replaces");
    if (is_set(values, "respect-memory"))
      refuse_option("respect-memory", "applies only to schedulers, which '--bins' replaces");
    if (!values["scheduler"].defaulted())
      refuse_option("scheduler", "cannot be combined with '--bins', which already gives the bins");
  }
  ScheduleFile schedule = bins ? scheduled_by({*bins, parse_bins(read_text_file(*bins), *bins)}, plan, target,
                                              batches, choice.limits.objective, seed)
                               : schedule_batches(plan, target, batches, choice, seed, &seconds);
  schedule.made_by = made_by;
  if (profile) require_reach(*profile, plan, target.model, batches, read_extrapolate(values));
  report_reasons(schedule);
  if (!schedule.iterations.back().feasible()) {
    print_infeasible(format, schedule.iterations.back().reason);
    return 3;
  }
  if (!bins) {
    report_objective(schedule, choice, plan);
    report(schedule, seconds);
  }
  if (out) write_file_atomically(*out, to_json(schedule));
  AssumptionBlock block;
  assume_data(block, *made_by.data, read_longest(values, target.model));
  assume_preset(block, plan.cluster, target.profile);
  assume_links(block, plan.cluster, target.cluster);
  const bool is_kept = !bins && choice.respects_memory(plan);
  block.add("memory",
            is_kept ? "kept within the memory of every GPU, as the plan or --respect-memory asks"
                    : "not checked: 'simulate' shows whether it suffices (--respect-memory)",
            {{"respect_memory", is_kept}});
  assume_seed(block, seed, batches.size(), plan.gbs, samples.size(),
              "other seeds have other batches (--seed)");
  print_table(schedule_table(schedule), format);
  const std::string text = block.text();
  if (format == Format::table) fmt::print("{}", text);
  if (format != Format::table) say("{}", text);
  return 0;
}

}  // namespace

Command schedule_command() {
  Command command{
      .name = "schedule",
      .task = Task::plan,
      .summary = "assign the samples of global batches to microbatches",
      .description =
          R"(Draws global batches from the data and assigns each sample to a microbatch and LLM dp rank of the
plan. C_max is the value of the objective: the largest load of any microbatch, encoder or LLM, or the simulated
makespan. bound and gap are proven only for this objective. The method makespan always minimizes the makespan;
for other methods with this objective, C_max is the makespan of their balanced bins. If the objective is the
makespan, the scheduler is auto unless --scheduler, --scheduler-command, --bins, --node-budget or --bin-order is
given. Without --steps, --node-budget or --time-limit, a search ends when the gap is 0.1 %, or after as much
work as takes a tenth of the iteration on a slow machine. Exit code 3 if no assignment obeys the caps.)",
      .example = "dflop schedule --plan plan.json --data traces/datasets/vision_mix.csv --out schedule.json",
      .run = run_schedule,
  };
  add_plan_option(command.options, text("FILE").required());
  add_data_options(command.options);
  add_gbs_option(command.options, whole("N"));
  add_iterations_option(command.options, 8);
  add_seed_option(command.options);
  add_delay_options(command.options);
  add_scheduler_options(command.options);
  add_scheduler_command_options(command.options);
  command.options.add({
      {"bins", text("FILE"),
       "instead of a scheduler: file with the bin of each sample (CSV or JSON, docs/schedule-file.md) in the "
       "batches of --data, --seed and --iterations; the makespan then has no bound"},
  });
  add_link_options(command.options);
  add_profile_option(command.options);
  add_extrapolate_option(command.options);
  command.options.add(OptionGroup::times,
                      {{"correction", text("FILE"),
                        "correction file, from 'dflop correction': include the learned correction in loads "
                        "and C_max"}});
  command.options.add(OptionGroup::output, {{"out", text("FILE").common(), "write all iterations as JSON"}});
  return command;
}

}  // namespace dflop
