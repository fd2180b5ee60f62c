// The linear program of the makespan over fractional items.
#pragma once

#include <cstddef>

#include "solver/pipeline_paths.hpp"

namespace dflop {

/// The paths that bound the makespan of these items best together, from the dual solution of
///
///   min T  with  T >= end of each rank's last step + its tail,
///                end of a step >= end of the one before on its rank + its duration,
///                end of a step >= end of the one that it waits for + message + its duration,
///                durations affine in what is in their microbatch, and
///                each shape's items in parts over all microbatches.
///
/// Each item is taken as a mixture of two of `shapes` shapes (at least 2), which may go apart. A dual
/// solution is a flow of one unit from the end of the iteration back to its start, a weight on every path;
/// MeanPipeline::bound() makes one of whatever the solver returned.
PathFlow best_paths(const MeanPipeline& pipeline, const Features& items, std::size_t shapes);

}  // namespace dflop
