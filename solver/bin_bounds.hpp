// Numbers that no assignment goes below.
#pragma once

#include "solver/bins.hpp"
#include "solver/load_pipeline.hpp"

namespace dflop {

/// Of a pipeline's makespan, in seconds: the busiest rank's work and tail, of dp replicas their mean.
double work_bound(const LoadPipeline& pipeline, const Features& features);

}  // namespace dflop
