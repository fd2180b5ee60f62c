#include "experiments/options/scheduler_options.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "experiments/studies/setting.hpp"
#include "solver/schedulers/command.hpp"
#include "solver/schedulers/schedulers.hpp"

namespace dflop {

std::optional<Objective> read_objective(const Values& values) {
  if (values.count("objective") == 0) return std::nullopt;
  return read_named<Objective>(values, "objective");
}

std::optional<BinOrder> read_bin_order(const Values& values) {
  if (values.count("bin-order") == 0) return std::nullopt;
  return read_named<BinOrder>(values, "bin-order");
}

std::optional<bool> read_respect_memory(const Values& values) {
  const bool on = is_set(values, "respect-memory");
  const bool off = is_set(values, "no-respect-memory");
  if (on && off) refuse_option("respect-memory", "cannot be combined with '--no-respect-memory'");
  return on || off ? std::optional(on) : std::nullopt;
}

SchedulerChoice read_scheduler(const Values& values) {
  constexpr std::int64_t kMaxTokens = std::int64_t{1} << 50;
  SchedulerChoice choice;
  if (const auto command = read_text(values, "scheduler-command")) {
    if (!values["scheduler"].defaulted())
      refuse_option("scheduler-command", "cannot be combined with '--scheduler'");
    refuse_given(values, {"steps", "node-budget", "time-limit"},
                 "applies only to dflop's own schedulers; '--scheduler-timeout' limits the command");
    use_scheduler_command(*command, Seconds(read_number(values, "scheduler-timeout", 1e-3, 86400)));
    choice.name = kCommandMethod;
  } else {
    choice.name = values["scheduler"].as<std::string>();
    require_one_of("scheduler", scheduler_names(), choice.name);
  }
  choice.limits.objective = read_objective(values);
  choice.limits.bin_order = read_bin_order(values);
  if (!choice.limits.bin_order && values.count("setting") > 0)
    choice.limits.bin_order = find_setting(values["setting"].as<std::string>()).bin_order;
  choice.limits.token_cap = read_optional_integer(values, "token-cap", 1, kMaxTokens);
  choice.respect_memory = read_respect_memory(values);
  choice.limits.steps = read_optional_integer(values, "steps", 1, INT64_MAX);
  choice.limits.node_budget = read_optional_integer(values, "node-budget", 0, INT32_MAX);
  if (values.count("time-limit") > 0) {
    if (choice.limits.node_budget || choice.limits.steps) {
      refuse_option("time-limit", "cannot be combined with '--node-budget' or '--steps'");
    }
    choice.limits.time_limit = Seconds(read_number(values, "time-limit", 1e-3, 86400));
  }
  return choice;
}

void choose_for_objective(SchedulerChoice& choice, const Values& values, const Plan& plan) {
  const auto is_given = [&](const char* option) { return values.count(option) > 0; };
  const bool is_open =
      values["scheduler"].defaulted() &&
      std::ranges::none_of(std::array{"scheduler-command", "bins", "node-budget", "bin-order"}, is_given);
  const std::optional<Objective> objective =
      choice.limits.objective ? choice.limits.objective : plan.objective;
  if (is_open && objective == Objective::makespan) choice.name = "auto";
}

}  // namespace dflop
