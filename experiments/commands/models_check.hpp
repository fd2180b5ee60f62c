// This header declares what `dflop models --check` runs.
#pragma once

#include "experiments/cli/option_values.hpp"

namespace dflop {

/// Prints what is read, not read and rejected of the model folder of option --check and, with --data, of data
/// for it. Returns the exit code: that of an input error if something is rejected.
int run_models_check(const Values& values);

}  // namespace dflop
