// This file computes the cost that each sample adds to the load of each module; schedulers balance these
// costs.
#pragma once

#include <span>
#include <vector>

#include "core/cost_model.hpp"

namespace dflop {

/// Returns the sum of the work of all samples.
Work total_work(std::span<const Sample> samples);

/// Returns one of `count` equal parts of a total, rounded up so that it is empty only if the total is.
Workload mean_part(const Workload& total, std::int64_t count);

/// SampleCosts holds seconds per sample, forward and backward, on the slowest of the pipeline ranks that hold
/// encoder layers and on the slowest of the ranks that hold only LLM layers. A rank's load is the sum over
/// its chunks. A rank of a uniform plan may hold layers of both modules; its load, and the cost that a sample
/// adds to it, is then the sum of both. In a colocated plan only 1 / pp of the encoder's cost counts, because
/// a rank encodes one of every pp microbatches. If every rank holds encoder layers, both costs are equal.
struct SampleCosts {
  std::vector<double> encoder_s;  ///< zero for samples without encoder work
  std::vector<double> llm_s;
};

/// Returns the marginal cost of every sample: the time that it adds to a microbatch that already carries the
/// mean load. The mean is over plan.bins() bins or, for a separate encoder, over microbatches * encoder.dp
/// parts. Costs are marginal because a microbatch pays the fixed overheads and the low efficiency of small
/// shapes only once: counted per sample, they would make many small samples look heavier than they are
/// together. CostModel::sample_excess(), the known cost of a sample beyond its work, is added.
///
/// encoder_s is the published per-bin value: the duration on one encoder dp rank times llm.dp / encoder.dp,
/// because all encoder ranks share a microbatch's encoder work and a scheduler sees one bin for each LLM dp
/// rank. This is stricter than the hardware, which only limits the sum over a microbatch's bins. Uniform and
/// colocated plans encode a sample on its own dp rank, and the factor is one.
///
/// Work that the model prices at zero gets one nanosecond, so that piling it up is never free.
SampleCosts sample_costs(const CostModel& cost, const Plan& plan, const ModelSpec& model,
                         std::span<const Sample> samples);

}  // namespace dflop
