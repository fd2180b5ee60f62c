// These are the costs that each sample adds to the load of each module, for schedulers.
#pragma once

#include <span>
#include <vector>

#include "core/cost_model.hpp"

namespace dflop {

/// Returns the sum of the work of all samples.
Work total_work(std::span<const Sample> samples);

/// Returns the mean of `count` parts of a total, rounded up so that it is empty only if all are.
Workload mean_part(const Workload& total, std::int64_t count);

/// SampleCosts are seconds per sample, forward and backward, on the slowest of the pipeline ranks that hold
/// encoder layers and on the slowest of those that hold only LLM layers. A rank's load is the sum over its
/// chunks. A rank of a uniform plan may hold both; its load is the sum of both, and so is what a sample adds
/// to it; in a colocated plan the encoder's part counts 1 / pp, as a rank encodes one microbatch in pp. Where
/// every rank holds encoder layers the two are the same.
struct SampleCosts {
  std::vector<double> encoder_s;  ///< zero for samples without work for that stage
  std::vector<double> llm_s;
};

/// Returns the marginal cost of every sample: what it adds to a microbatch that already carries the mean
/// load, the mean over plan.bins() for the LLM and over microbatches * encoder.dp for an encoder apart.
/// Marginal and not alone, because the fixed overheads and the low efficiency of small shapes are paid once a
/// microbatch: counted per sample they would make many small samples look heavier than they are together.
/// What a cost model knows of a sample beyond its work (CostModel::sample_excess()) comes on top.
///
/// encoder_s is the published per-bin value: the duration on one encoder dp rank times llm.dp / encoder.dp,
/// as a microbatch's encoder work is shared by all encoder ranks and a scheduler sees one bin for each LLM dp
/// rank. It asks more than the hardware does: there only the sum over a microbatch's bins is limited. Uniform
/// and colocated plans encode a sample on its own dp rank, and the factor is one.
///
/// Work that costs nothing by the model is given a nanosecond, so that it is never free to pile up.
SampleCosts sample_costs(const CostModel& cost, const Plan& plan, const ModelSpec& model,
                         std::span<const Sample> samples);

}  // namespace dflop
