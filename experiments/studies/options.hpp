// Option groups that several commands share, and how their values are read.
#pragma once

#include <optional>
#include <string>

#include "core/iteration/planner.hpp"
#include "experiments/cli/option_values.hpp"
#include "experiments/cli/table.hpp"
#include "experiments/studies/study.hpp"
#include "traces/preprocess/preprocess.hpp"

namespace dflop {

/// Samples in a global batch at most.
inline constexpr std::int64_t kMostGbs = 65'536;

/// Samples of all iterations at most: about a gigabyte.
inline constexpr std::int64_t kMostSamplesInAll = 4'000'000;

/// "a|b|c", for --help.
std::string joined(const std::vector<std::string_view>& names);

/// The same of all values of an enum.
template <Named Enum>
std::string joined() {
  return joined(names_of(all_of<Enum>()));
}

/// --data, --modalities, --assume-image, --assume-video, --strict.
void add_data_options(Options& options);
/// The same with a data set where none is named.
void add_data_options(Options& options, const char* default_file);
/// --model, --cluster.
void add_target_options(Options& options);
/// --gbs, --iterations, --seed.
void add_batch_options(Options& options);
/// --pipeline-schedule, --chunks, --recompute, --gradient-bucket, --no-zero1, --no-sequence-parallel.
void add_plan_options(Options& options);
/// --objective.
void add_objective_option(Options& options);
/// Nothing where it was not given. @throws Error (usage) for an unknown name.
std::optional<Objective> read_objective(const Values& values);
/// --scheduler, --objective, --token-cap, --respect-memory, --steps, --node-budget, --time-limit.
void add_scheduler_options(Options& options);
/// Reads what add_scheduler_options() declared, of which but `scheduler` may be missing. @throws Error
/// (usage) for an unknown name or several limits.
SchedulerChoice read_scheduler(const Values& values);
/// --truth.
void add_truth_option(Options& options, bool required);
/// --format.
void add_format_option(Options& options);

/// --objective, --layout, --budget: what the planner search is told beside add_plan_options().
void add_search_options(Options& options);
/// Reads what add_search_options() declared. Schedule and recomputation are the search's to choose unless
/// they were given.
SearchOptions read_search_options(const Values& values);

/// Reads what add_data_options() declared; rule and maximum length come from the model.
PreprocessOptions read_preprocess_options(const Values& values, const ModelSpec& model, std::uint64_t seed);
PlanOptions read_plan_options(const Values& values);
Format read_format(const Values& values);

int read_gbs(const Values& values);
/// @throws Error (usage) also where gbs * iterations samples are too many to hold.
int read_iterations(const Values& values, int gbs);
std::uint64_t read_seed(const Values& values);

}  // namespace dflop
