// This file reads the job of 'dflop train' from its options.
#pragma once

#include "experiments/cli/option_values.hpp"
#include "experiments/training/job.hpp"

namespace dflop {

/// Adds the options that request a plan: parallelism, microbatches, layout, order and other settings.
void add_wanted_plan_options(Options& options);

/// Reads the job. The plan comes from a file or, if options of add_wanted_plan_options() are given, is the
/// best plan that satisfies them; without either it has one encoder and one LLM rank.
/// @throws Error (usage); what find_model(), parse_plan(), validate() and load_samples() throw; Error (input)
/// naming the requirement that no plan satisfies
TrainJob read_train_job(const Values& values);

}  // namespace dflop
