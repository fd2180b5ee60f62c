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
};

/// A FreePart is a choice in a plan other than its parallelism and microbatches.
enum class FreePart : std::uint8_t { order, recomputation, placement, gradient_buckets };

template <>
inline constexpr NameTable<FreePart, 4> kNames<FreePart> = {
    {{FreePart::order, "order"},
     {FreePart::recomputation, "recomputation"},
     {FreePart::placement, "placement"},
     {FreePart::gradient_buckets, "gradient buckets"}}};

/// A SystemKind is a row of the table of planning systems.
struct SystemKind {
  std::string_view name;
  std::string_view planner;
  Filling filling = Filling::random;
  bool any_layout = false;           ///< chooses the layout, too, unless the user fixes it
  std::string_view chooses;          ///< parallelism and microbatch values that the planner chooses
  std::vector<FreePart> parts = {};  ///< also chosen unless the user fixes them
  std::string_view what;             ///< what the planner does, for --help
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
  std::optional<Evaluation> evaluation{};  ///< empty if infeasible; see planned.infeasible_reason
  /// Whether its plan fits further batches, as planners see them; unknown for a planner command's plan.
  std::optional<bool> fits_further{};
  Seconds planning{0};    ///< measured
  std::string chooses{};  ///< the choices it was free to make

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
  SearchOptions search;  ///< the choices open to all systems, and the settings of system "search"
};

/// A Training describes a training run whose cost is estimated.
struct Training {
  double samples = 0;
  std::optional<double> gpu_hour_cost;
  std::optional<double> gpu_power_w;
  double overhead = 0;  ///< time outside steps, relative to step time
};

/// Returns the systems with these names, or all if there are none, in the order of the table. Systems that
/// use the user's scheduler get `scheduler`. They may not choose what `search` fixes.
/// @throws Error (usage) for an unknown name
std::vector<System> systems_to_compare(const std::vector<std::string_view>& names,
                                       const SchedulerChoice& scheduler, const SearchOptions& search = {});

/// Reads the user's plans. Each becomes a system named after its file, without ".json", with microbatches
/// from `scheduler`.
/// @throws Error (input) for a file that is not a plan, a plan for another model, cluster or global batch
/// size, and a name that another row has
std::vector<System> own_systems(const std::vector<std::string_view>& files, const Target& target, int gbs,
                                const SchedulerChoice& scheduler, const std::vector<System>& others);

/// Plans, schedules and simulates every system; each planner runs once. The search runs last and starts from
/// the other systems' plans. If one of those plans with its own microbatches beats the result of the search,
/// it becomes the search's plan, provided that --layout allows it.
void run_systems(std::vector<System>& systems, const Target& target, const ComparisonInput& input);

/// If the plan of a search does not fit further batches, replaces it with the best plan of another row that
/// does. Returns whether there is one.
bool prefer_rows_that_fit(std::vector<System>& systems, const SearchOptions& options);

/// Returns the time to train `samples` samples at a system's throughput, including the overhead.
Seconds training_time(const System& system, const Training& training);

/// Returns a row for each system; the last column lists its free choices.
Table comparison_table(const std::vector<System>& systems);

/// Returns a comparison without the column of free choices, which is too wide for a page.
Table without_choices(const Table& table);

/// Returns the table with all columns for people, with the free choices of each system below.
std::string comparison_text(const Table& table, const std::function<std::string(const Table&)>& to_text);

/// Adds hours, GPU-hours and, if requested, cost and energy.
void add_training_columns(Table& table, const std::vector<System>& systems, const Training& training,
                          int gpus);

/// Returns a sentence for each system that does not fit.
std::vector<std::string> infeasible_notes(const std::vector<System>& systems);

}  // namespace dflop
