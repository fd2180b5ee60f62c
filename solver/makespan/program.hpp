// The linear program of the makespan over fractional items.
#pragma once

#include <cstddef>

#include "solver/makespan/paths.hpp"

namespace dflop {

struct ProgramLimits {
  std::size_t shapes = 3;    ///< that items are mixtures of, at least 2
  int iterations = 50'000;   ///< of the simplex method, 10 to 60 us each
  std::size_t steps = 4096;  ///< of a larger pipeline nothing is solved, as that takes many seconds
};

/// The paths that bound the makespan of these items best together, from the dual solution of
///
///   min T  with  T >= end of each rank's last step + its tail,
///                end of a step >= end of the one before on its rank + its duration,
///                end of a step >= end of the one that it waits for + message + its duration,
///                durations affine in what is in their microbatch, and
///                each shape's items in parts over all microbatches.
///
/// Each item is taken as a mixture of two shapes, which may go apart. A dual
/// solution is a flow of one unit from the end of the iteration back to its start, a weight on every path;
/// MeanPipeline::bound() makes one of whatever the solver returned, at its end or before.
PathFlow best_paths(const MeanPipeline& pipeline, const Features& items, const ProgramLimits& limits);

}  // namespace dflop
