// dflop simulate --pipeline: runs a pipeline that is described by its durations alone.
#pragma once

#include "experiments/studies/options.hpp"

namespace dflop {

/// Simulates the file of --pipeline, writes --out and --perfetto, prints as --format says, and returns the
/// exit code. @throws Error (usage) if --plan or --schedule is also given.
int simulate_pipeline(const Values& values);

}  // namespace dflop
