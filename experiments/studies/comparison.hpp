// This file compares several systems on the same global batches, for `dflop compare`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/cli/table.hpp"
#include "experiments/studies/batches.hpp"
#include "experiments/studies/evaluation.hpp"
#include "experiments/studies/scheduling.hpp"
#include "experiments/studies/target.hpp"

namespace dflop {

/// A Filling is a way of assigning samples to microbatches.
enum class Filling : std::uint8_t {
  random,
  chosen,    ///< by the user's scheduler
  searched,  ///< by the scheduler that was best in the search
  own,       ///< by the system's own scheduler (SystemKind::scheduler)
};

/// A FreePart is a setting of a plan that a planner may choose in addition to parallelism and microbatches.
enum class FreePart : std::uint8_t { order, recomputation, placement, gradient_buckets };

template <>
inline constexpr NameTable<FreePart, 4> kNames<FreePart> = {
    {{FreePart::order, "order"},
     {FreePart::recomputation, "recomputation"},
     {FreePart::placement, "placement"},
     {FreePart::gradient_buckets, "gradient buckets"}}};

/// A SystemKind describes a planning system that can be compared.
struct SystemKind {
  std::string_view name;
  std::string_view planner;
  Filling filling = Filling::random;
  bool any_layout = false;   ///< whether the planner chooses the layout, too, unless the user fixes it
  std::string_view chooses;  ///< parallelism and microbatch values that the planner chooses
  std::vector<FreePart> parts = {};  ///< other settings that the planner chooses unless the user fixes them
  std::string_view what;             ///< what the planner does, for --help
  std::string_view scheduler = {};   ///< with Filling::own
  bool by_name_only = false;         ///< not compared unless the user names it
};

/// Returns the systems that can be compared, in the order of the rows.
const std::vector<SystemKind>& system_kinds();

/// A System is one row of the comparison.
struct System {
  std::string name;
  std::string planner;  ///< "none" for a user's plan
  SchedulerChoice scheduler;
  PlanResult planned{};
  ScheduleFile schedule{};
  /// Empty if infeasible; planned.infeasible_reason then has the reason.
  std::optional<Evaluation> evaluation{};
  /// Whether the plan fits the further batches that planners get; unknown for the plan of a planner command.
  std::optional<bool> fits_further{};
  Seconds planning{0};    ///< measured
  std::string chooses{};  ///< the settings that it was free to choose

  bool is_search() const { return planner == "search"; }
};

/// A ComparisonInput holds the global batches that all systems get.
struct ComparisonInput {
  std::vector<Sample> samples;
  std::vector<Batch> batches;
  std::vector<Batch> further;  ///< as returned by batches_to_fit()
  int gbs = 0;
  std::uint64_t seed = 0;
  OutlierDelay delay = {};  ///< the delay with which the batches were drawn
  PlanOptions options;
  SearchOptions search;  ///< the values that all systems may choose from, and the settings of system "search"
};

/// A Training describes a training run, to estimate its cost.
struct Training {
  double samples = 0;
  std::optional<double> gpu_hour_cost;
  std::optional<double> gpu_power_w;
  double overhead = 0;  ///< time outside steps, relative to step time
};

/// Returns the named systems in the order of system_kinds(). If `names` is empty, returns all except those
/// with by_name_only. Systems with Filling::chosen use `scheduler`. Systems may not choose the settings that
/// `search` fixes.
/// @throws Error (usage) for an unknown or repeated name
std::vector<System> systems_to_compare(const std::vector<std::string_view>& names,
                                       const SchedulerChoice& scheduler, const SearchOptions& search = {});

/// Reads the user's plans. Each becomes a system named after its file, without ".json", and gets its
/// microbatches from `scheduler`.
/// @throws Error (input) for a file that is not a plan, a plan for another model, cluster or global batch
/// size, and a name that another system has
std::vector<System> own_systems(const std::vector<std::string_view>& files, const Target& target, int gbs,
                                const SchedulerChoice& scheduler, const std::vector<System>& others);

/// Plans, schedules and simulates every system. Each planner runs once. The search runs last and starts from
/// the other systems' plans. If another system's plan, with that system's microbatches, is faster than the
/// result of the search and has a layout that --layout allows, the search takes it.
void run_systems(std::vector<System>& systems, const Target& target, const ComparisonInput& input);

/// If the plan of system "search" does not fit further batches, replaces it with the best plan of another
/// system that does. Returns whether it found one.
bool prefer_rows_that_fit(std::vector<System>& systems, const SearchOptions& options);

/// Returns the time to train `samples` samples at a system's throughput, including the overhead.
Seconds training_time(const System& system, const Training& training);

/// Returns a table with a row for each system. The last column lists the settings that the system was free to
/// choose.
Table comparison_table(const std::vector<System>& systems);

/// Returns a comparison table without the column of settings that a system was free to choose, which is too
/// wide for a page.
Table without_choices(const Table& table);

/// Returns a comparison table as text with all columns. The settings that each system was free to choose are
/// listed below the table.
std::string comparison_text(const Table& table, const std::function<std::string(const Table&)>& to_text);

/// Adds columns for the hours and GPU-hours of a training run on `gpus` GPUs and, if requested, its cost and
/// energy.
void add_training_columns(Table& table, const std::vector<System>& systems, const Training& training,
                          int gpus);

/// Returns a sentence for each system without a feasible plan.
std::vector<std::string> infeasible_notes(const std::vector<System>& systems);

}  // namespace dflop
