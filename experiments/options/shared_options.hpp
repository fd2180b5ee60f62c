// This file declares the options that several commands share, so that an option has the same help in all of
// them. The other files of this folder read the values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/names.hpp"
#include "experiments/cli/option_values.hpp"

namespace dflop {

/// Returns "a|b|c", for --help.
std::string joined(const std::vector<std::string_view>& names);

/// Returns the names of all values of an enum as "a|b|c".
template <Named Enum>
std::string joined() {
  return joined(names_of(all_of<Enum>()));
}

// The functions below add options to a command's table. A function that takes a ValueKind adds one option;
// each command decides with the kind whether the option is required and what its default is.

/// Adds --data and --chat.
void add_data_option(Options& options, const ValueKind& kind);
/// Adds --data, --chat, --modalities, --assume-image, --assume-video, --max-tokens, --strict and others.
/// `default_file` is the default data set; null: --data is required.
void add_data_options(Options& options, const char* default_file = nullptr);
/// Adds --model and --cluster, both required.
void add_target_options(Options& options);
void add_model_option(Options& options, const ValueKind& kind);
void add_cluster_option(Options& options, const ValueKind& kind);
void add_plan_option(Options& options, const ValueKind& kind);
void add_gbs_option(Options& options, const ValueKind& kind);
void add_iterations_option(Options& options, std::int64_t usual);
void add_seed_option(Options& options);
/// Adds --gbs (required), --iterations and --seed.
void add_batch_options(Options& options);
/// Adds --delay-outliers and --outlier-bins.
void add_delay_options(Options& options);
/// Adds --objective.
void add_objective_option(Options& options);
/// Adds --bin-order.
void add_bin_order_option(Options& options);
/// Adds --respect-memory and --no-respect-memory; read_scheduler() reads them.
void add_memory_options(Options& options);
void add_scheduler_option(Options& options, const ValueKind& kind);
/// Adds --token-cap.
void add_token_cap_option(Options& options);
/// Adds --steps, which limits the search steps of a scheduler.
void add_work_option(Options& options);
/// Adds --time-limit.
void add_time_limit_option(Options& options);
/// Adds --scheduler, --objective, --bin-order, --token-cap, --respect-memory, --no-respect-memory, --steps,
/// --node-budget, --time-limit.
void add_scheduler_options(Options& options);
/// Adds --scheduler-command and --scheduler-timeout: a user's own program that replaces --scheduler.
void add_scheduler_command_options(Options& options);
/// Adds the options that fix the parallelism of a plan: --tp, --pp and --dp, their counterparts for the
/// encoder, and --microbatches.
void add_wish_options(Options& options);
void add_dp_option(Options& options, const ValueKind& kind);
void add_encoder_dp_option(Options& options, const ValueKind& kind);
void add_microbatches_option(Options& options);
void add_no_sequence_parallel_option(Options& options);
/// Adds --tp, which takes several values, and --no-sequence-parallel, for commands that measure.
void add_measured_tp_options(Options& options);
/// Adds --steps, the number of training steps.
void add_training_steps_option(Options& options, const ValueKind& kind);
/// Adds --warm-up, the number of uncounted steps before the measured ones.
void add_uncounted_steps_option(Options& options);
void add_schedule_option(Options& options, const ValueKind& kind);
void add_trace_option(Options& options, const ValueKind& kind);
void add_order_file_option(Options& options);
/// Adds --profile.
void add_profile_file_option(Options& options);
void add_kernels_file_option(Options& options, const ValueKind& kind);
void add_foreign_profile_option(Options& options);
void add_extrapolate_option(Options& options);
/// Adds --budget-s.
void add_measuring_time_option(Options& options, double usual);
void add_random_weights_option(Options& options);
void add_html_option(Options& options);
void add_perfetto_option(Options& options);
/// Adds --truth.
void add_truth_option(Options& options, bool required);
/// Adds the options that only the planner search has, such as --plan-objective, --layout and --budget.
void add_search_options(Options& options);

}  // namespace dflop
