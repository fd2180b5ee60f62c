// This file reads the settings of 'dflop train' from its options.
#pragma once

#include "experiments/cli/option_values.hpp"
#include "experiments/training/job.hpp"
#include "experiments/training/live_setup.hpp"
#include "experiments/training/settings.hpp"

namespace dflop {

/// Reads the settings that do not depend on the job. @throws Error (usage)
TrainSettings read_train_settings(const Values& values, const LiveDevice& device);

/// Reads the settings that depend on the job: the held-out data, the correction and the exported folder.
/// @throws Error (usage) for settings that the job's model, plan or data do not allow; what read_held_out()
/// throws
void read_settings_of_job(const Values& values, const TrainJob& job, TrainSettings& settings);

}  // namespace dflop
