// A comparison measures several systems on the same global batches, for `dflop compare`.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/cli/table.hpp"
#include "experiments/studies/study.hpp"

namespace dflop {

/// A Filling says how a system fills microbatches.
enum class Filling : std::uint8_t {
  random,
  chosen,    ///< by the scheduler that the user chose
  searched,  ///< by the scheduler with which the search did best
};

/// A SystemKind is a row of the table of systems that plan.
struct SystemKind {
  std::string_view name;
  std::string_view planner;
  Filling filling = Filling::random;
  std::string_view what;  ///< what the planner does, for help
};

/// Returns the systems that can be compared, in the order of the rows.
std::span<const SystemKind> system_kinds();

/// A System is one row of the comparison.
struct System {
  std::string name;
  std::string planner;
  SchedulerChoice scheduler;
  PlanResult planned{};
  ScheduleFile schedule{};
  std::optional<Evaluation> evaluation{};  ///< absent: infeasible, as planned.infeasible_reason says
  Seconds planning{0};                     ///< measured
};

/// A ComparisonInput has the global batches that all systems get.
struct ComparisonInput {
  std::vector<Sample> samples;
  std::vector<Batch> batches;
  int gbs = 0;
  std::uint64_t seed = 0;
  PlanOptions options;
  SearchOptions search;  ///< of the system "search"
};

/// A Training says what a training run costs its owner.
struct Training {
  double samples = 0;
  std::optional<double> gpu_hour_cost;
  std::optional<double> gpu_power_w;
};

/// Returns the systems of those names, in the order of the table, with `scheduler` where they take the
/// user's; all of them where no name is given.
/// @throws Error (usage) for an unknown name
std::vector<System> systems_to_compare(const std::vector<std::string_view>& names,
                                       const SchedulerChoice& scheduler);

/// Plans, schedules and simulates every system; each planner runs once.
void run_systems(std::vector<System>& systems, const Target& target, const ComparisonInput& input);

/// Returns the time of `samples` samples at a system's throughput.
Seconds training_time(const System& system, const Training& training);

Table comparison_table(const std::vector<System>& systems);

/// Adds hours, GPU-hours and, where they are asked for, cost and energy.
void add_training_columns(Table& table, const std::vector<System>& systems, const Training& training,
                          int gpus);

/// Returns a sentence for each system that does not fit.
std::vector<std::string> infeasible_notes(const std::vector<System>& systems);

}  // namespace dflop
