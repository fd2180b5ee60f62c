// This file reads the job of 'dflop train' from its options.
#pragma once

#include "experiments/cli/option_values.hpp"
#include "experiments/training/job.hpp"

namespace dflop {

/// Adds the options that request a plan: parallelism, microbatches, layout, order and other settings.
void add_wanted_plan_options(Options& options);

/// Reads the job. The plan comes from a file, or is the best plan that satisfies the given options of
/// add_wanted_plan_options(). If neither is given, the plan has one encoder rank and one LLM rank.
/// @throws Error (usage); Error (input) naming a requirement that no plan satisfies; what find_model(),
/// parse_plan(), validate() and load_samples() throw
TrainJob read_train_job(const Values& values);

}  // namespace dflop
