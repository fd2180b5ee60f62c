// These functions declare and read the options of the optimizer.
#pragma once

#include <cstdint>

#include "experiments/cli/option_values.hpp"
#include "experiments/training/optimizer.hpp"

namespace dflop {

void add_optimizer_options(Options& options);
/// Reads the optimizer options, for a training run of `steps` steps. @throws Error (usage)
OptimizerChoice read_optimizer(const Values& values, std::int64_t steps);

}  // namespace dflop
