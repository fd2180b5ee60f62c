// A comparison measures several systems on the same global batches, for `dflop compare`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
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

/// A FreePart is what a plan has beside its parallelism and microbatches.
enum class FreePart : std::uint8_t { order, recomputation, placement, gradient_buckets };

template <>
inline constexpr NameTable<FreePart, 4> kNames<FreePart> = {
    {{FreePart::order, "order"},
     {FreePart::recomputation, "recomputation"},
     {FreePart::placement, "placement"},
     {FreePart::gradient_buckets, "gradient buckets"}}};

/// A SystemKind is a row of the table of systems that plan.
struct SystemKind {
  std::string_view name;
  std::string_view planner;
  Filling filling = Filling::random;
  bool any_layout = false;           ///< chosen, too, unless the user fixes it
  std::string_view chooses;          ///< parallelism and microbatches, as the planner can choose them
  std::vector<FreePart> parts = {};  ///< chosen unless the user fixes them
  std::string_view what;             ///< what the planner does, for help
};

/// Returns the systems that can be compared, in the order of the rows.
const std::vector<SystemKind>& system_kinds();

/// A System is one row of the comparison.
struct System {
  std::string name;
  std::string planner;  ///< "none" of a plan of the user's
  SchedulerChoice scheduler;
  PlanResult planned{};
  ScheduleFile schedule{};
  std::optional<Evaluation> evaluation{};  ///< absent: infeasible, as planned.infeasible_reason says
  /// Whether its plan fits further batches, as planners are shown; not known of a command's.
  std::optional<bool> fits_further{};
  Seconds planning{0};    ///< measured
  std::string chooses{};  ///< what it was free to choose

  bool is_search() const { return planner == "search"; }
};

/// A ComparisonInput has the global batches that all systems get.
struct ComparisonInput {
  std::vector<Sample> samples;
  std::vector<Batch> batches;
  std::vector<Batch> further;  ///< batches_to_fit()
  int gbs = 0;
  std::uint64_t seed = 0;
  OutlierDelay delay = {};  ///< with which the batches were drawn
  PlanOptions options;
  SearchOptions search;  ///< what all may choose, and how the system "search" does
};

/// A Training says what a training run costs its owner.
struct Training {
  double samples = 0;
  std::optional<double> gpu_hour_cost;
  std::optional<double> gpu_power_w;
  double overhead = 0;  ///< time beside steps, as a part of theirs
};

/// Returns the systems of those names, in the order of the table, with `scheduler` where they take the
/// user's; all of them where no name is given. What `search` fixes they are not free to choose.
/// @throws Error (usage) for an unknown name
std::vector<System> systems_to_compare(const std::vector<std::string_view>& names,
                                       const SchedulerChoice& scheduler, const SearchOptions& search = {});

/// Reads plans of the user's own, each a system with the name of its file without ".json", filled by
/// `scheduler`.
/// @throws Error (input) for a file that is no plan, a plan of another model, cluster or global batch size,
/// and a name that another row has
std::vector<System> own_systems(const std::vector<std::string_view>& files, const Target& target, int gbs,
                                const SchedulerChoice& scheduler, const std::vector<System>& others);

/// Plans, schedules and simulates every system; each planner runs once. The search comes after all others:
/// it starts from their plans, and where one of them does better with its own microbatches than what the
/// search has found, that is the search's plan, if --layout allows it.
void run_systems(std::vector<System>& systems, const Target& target, const ComparisonInput& input);

/// Gives a search whose plan does not fit further batches the best plan of another row that does. Returns
/// whether there is one.
bool prefer_rows_that_fit(std::vector<System>& systems, const SearchOptions& options);

/// Returns the time of `samples` samples at a system's throughput, with the overhead.
Seconds training_time(const System& system, const Training& training);

/// Returns a row for each system; the last column says what it was free to choose.
Table comparison_table(const std::vector<System>& systems);

/// Returns a comparison without the column that says what each system is free to choose, which is too wide
/// for a page.
Table without_choices(Table table);

/// Returns the table for people: what each system was free to choose stands below it.
std::string comparison_text(const Table& table, const std::function<std::string(const Table&)>& to_text);

/// Adds hours, GPU-hours and, where they are asked for, cost and energy.
void add_training_columns(Table& table, const std::vector<System>& systems, const Training& training,
                          int gpus);

/// Returns a sentence for each system that does not fit.
std::vector<std::string> infeasible_notes(const std::vector<System>& systems);

}  // namespace dflop
