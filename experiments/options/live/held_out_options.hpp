// These functions declare and read the options of held-out data.
#pragma once

#include <optional>

#include "experiments/cli/option_values.hpp"
#include "experiments/training/held_out.hpp"
#include "experiments/training/job.hpp"

namespace dflop {

/// Adds --eval-data, --eval-every and --eval-steps.
void add_held_out_options(Options& options);
/// Reads these options; nothing without --eval-data.
/// @throws Error (usage) for the others without it; as read_samples() and open_shards(), and Error (input)
/// for fewer samples than a step of the plan needs
std::optional<HeldOutData> read_held_out(const Values& values, const TrainJob& job);

}  // namespace dflop
