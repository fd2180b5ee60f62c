// dflop check schedule checks a schedule file against its plan, its samples and its own figures.
#include <fmt/format.h>

#include "experiments/cli/command.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/options/conditions.hpp"
#include "experiments/options/profile_options.hpp"
#include "experiments/options/shared_options.hpp"
#include "experiments/studies/named_profile.hpp"
#include "experiments/trust/schedule_check.hpp"
#include "traces/files/plan.hpp"
#include "traces/files/schedule.hpp"

namespace dflop {
namespace {

Table schedule_check_table(const ScheduleFile& schedule, const std::vector<CheckedIteration>& checked) {
  Table table;
  table.columns = {{"iteration", "iteration"},      {"samples", "samples"},    {"objective", "objective"},
                   {"c_max_s", "C_max s", 4},       {"found_s", "found s", 4}, {"bound_s", "bound s", 4},
                   {"bound_kind", "kind of bound"}, {"problem", "problem"}};
  for (std::size_t k = 0; k < checked.size(); ++k) {
    const ScheduledIteration& iteration = schedule.iterations[k];
    const bool bounded = iteration.bound_kind != BoundKind::none;
    table.rows.push_back({k, iteration.samples.size(), to_string(iteration.objective),
                          checked[k].says_value ? Cell(iteration.value) : Cell(), checked[k].value,
                          bounded ? Cell(iteration.bound) : Cell(), to_string(iteration.bound_kind),
                          checked[k].problem.empty() ? "none" : checked[k].problem});
  }
  return table;
}

std::vector<Batch> batches_of(const ScheduleFile& schedule) {
  std::vector<Batch> batches;
  for (const ScheduledIteration& iteration : schedule.iterations) batches.push_back(iteration.samples);
  return batches;
}

int run_schedule_check(const Values& values) {
  const Format format = read_format(values);
  const std::optional<NamedProfile> profile = read_profile(values);
  if (profile) refuse_given(values, link_option_names(), kMeasuredLinks);
  const auto file = values["schedule"].as<std::string>();
  const PlanFiles files(values["plan"].as<std::string>(), file, read_link_changes(values),
                        profile ? &*profile : nullptr);
  if (profile)
    require_reach(*profile, files.plan, files.target.model, batches_of(files.schedule),
                  read_extrapolate(values));
  const std::vector<CheckedIteration> checked = check_schedule(files.schedule, files.plan, files.target);
  print_table(schedule_check_table(files.schedule, checked), format);
  bool fits = true;
  for (std::size_t k = 0; k < checked.size(); ++k) {
    if (checked[k].problem.empty()) continue;
    fits = false;
    say("dflop: {}: key 'iterations[{}]': {}\n", file, k, checked[k].problem);
  }
  return fits ? 0 : 2;
}

}  // namespace

Command check_schedule_command() {
  Command command{
      .name = "check schedule",
      .task = Task::check,
      .summary = "check a schedule file against its plan",
      .description =
          R"(Reads a schedule, which may be written or edited by hand (docs/schedule-file.md lists its keys),
and checks that it fits the plan: every sample occurs once, bins are in range and not empty, and samples are
possible. If the file has c_max_s and bound_s, they must match its bins and samples by the plan's cost model.
A bound of the makespan, or a bound that an integer program has proven, is not proven again. Exit code 2 if
something is wrong, with the key. Check a schedule made with --profile or for other links with the same
options; figures made with --correction differ.)",
      .example =
          "dflop check schedule --plan traces/kineto/plans/e1l2.json --schedule "
          "traces/kineto/plans/e1l2-schedule.json",
      .run = run_schedule_check,
      .old_name = "check",
  };
  add_plan_option(command.options, text("FILE").required());
  add_schedule_option(command.options, text("FILE").required());
  add_link_options(command.options);
  add_profile_option(command.options);
  add_extrapolate_option(command.options);
  return command;
}

}  // namespace dflop
