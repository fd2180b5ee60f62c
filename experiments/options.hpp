// Option groups that several commands share, and how their values are read.
#pragma once

#include <boost/program_options.hpp>
#include <optional>
#include <string>

#include "core/planner.hpp"
#include "experiments/table.hpp"
#include "traces/preprocess.hpp"

namespace dflop {

using Options = boost::program_options::options_description;
using Values = boost::program_options::variables_map;

/// --data, --modalities, --assume-image, --assume-video, --strict.
void add_data_options(Options& options);
/// --model, --cluster.
void add_target_options(Options& options);
/// --gbs, --iterations, --seed.
void add_batch_options(Options& options);
/// --pipeline-schedule, --recompute, --no-zero1, --no-sequence-parallel.
void add_plan_options(Options& options);
/// --scheduler, --node-budget, --time-limit.
void add_scheduler_options(Options& options);
/// --format.
void add_format_option(Options& options);

/// Reads what add_data_options() declared; rule and maximum length come from the model.
PreprocessOptions read_preprocess_options(const Values& values);
PlanOptions read_plan_options(const Values& values);
Format read_format(const Values& values);
std::optional<Seconds> read_time_limit(const Values& values);

/// An integer option in [lowest, highest]. @throws Error (usage) otherwise.
std::int64_t read_integer(const Values& values, const std::string& name, std::int64_t lowest,
                          std::int64_t highest);

/// A finite number option of at least `lowest`. @throws Error (usage) otherwise.
double read_number(const Values& values, const std::string& name, double lowest);

/// A text option, or nothing where it was not given.
std::optional<std::string> read_text(const Values& values, const std::string& name);

/// The text of a JSON file, unpacked if it is gzipped.
std::string read_document(const std::string& path);

int read_gbs(const Values& values);
int read_iterations(const Values& values);
std::uint64_t read_seed(const Values& values);

}  // namespace dflop
