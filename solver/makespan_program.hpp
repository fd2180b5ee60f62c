// The linear program of the makespan over fractional items.
#pragma once

#include <cstddef>

#include "solver/pipeline_paths.hpp"

namespace dflop {

/// The weighted mean of paths that bounds the makespan of these items best: from the dual solution of
///
///   min T  with  T >= end of each rank's last step + its tail,
///                end of a step >= end of the one before on its rank + its duration,
///                end of a step >= end of the one that it waits for + message + its duration,
///                durations affine in what is in their microbatch, and
///                each shape's items in parts over all microbatches.
///
/// Each item is taken as a mixture of two of `shapes` shapes, which may go apart. A dual solution is a flow
/// of one unit from the end of the iteration back to its start, a weight on every path. Here the solver's
/// flow is walked from the end and at each step split anew in its proportions, so that whatever the solver
/// returned, or with nothing returned, the result is a flow, and PathBound::at() of it a bound.
///
/// Rows of the result are those of the microbatches. The pipeline must have features.
PathBound best_path_mix(const MeanPipeline& pipeline, const Features& items, std::size_t shapes);

}  // namespace dflop
