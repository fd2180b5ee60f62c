// These functions declare and read the options of held-out data.
#pragma once

#include <optional>

#include "experiments/cli/option_values.hpp"
#include "experiments/training/held_out.hpp"
#include "experiments/training/job.hpp"

namespace dflop {

/// Adds --eval-data, --eval-every and --eval-steps.
void add_held_out_options(Options& options);
/// Reads --eval-data, --eval-every and --eval-steps; nullopt if --eval-data was not given.
/// @throws Error (usage) if --eval-every or --eval-steps was given without --eval-data; Error (input) for
/// fewer samples than a step of the plan needs; what read_samples() and open_shards() throw
std::optional<HeldOutData> read_held_out(const Values& values, const TrainJob& job);

}  // namespace dflop
