// The linear program of the makespan over fractional items.
#pragma once

#include "solver/pipeline_paths.hpp"

namespace dflop {

/// The weighted mean of paths that bounds the makespan of these items best, nearly: the dual solution of
///
///   min T  with  T >= length of each path,  each item's parts in all microbatches together being the item.
///
/// Found by cutting planes (Kelley 1960): fractions that are best for the paths known so far are run through
/// the pipeline, whose critical paths are added, until the run is no longer than what the linear program
/// says or `rounds` runs were made. Items of like shape are taken together, and the weights are only what the
/// solver says; PathBound::at() is a bound whatever they are.
///
/// Rows are those of the microbatches. The pipeline must have features. Not the same pipeline on two threads:
/// it is copied.
PathBound best_path_mix(MeanPipeline pipeline, const Features& items, int rounds);

}  // namespace dflop
