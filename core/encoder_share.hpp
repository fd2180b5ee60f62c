// Who encodes what: the encoder sequences of a microbatch over the encoder's dp ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/plan.hpp"
#include "core/sample.hpp"

namespace dflop {

/// Sample indices of each bin, in batch order.
using SamplesOfBins = std::vector<std::vector<std::int32_t>>;

SamplesOfBins samples_of_bins(const Plan& plan, const Assignment& assignment);

/// How the encoder sequences of one microbatch are shared over the encoder's dp ranks.
struct EncoderShare {
  std::vector<Workload> work;               // per encoder dp rank
  std::vector<std::int64_t> output_tokens;  // [encoder dp rank * llm dp + llm dp rank]
};

/// Walks all sequences of microbatch `j` in order and gives each to the rank into whose equal part of the
/// total weight its middle falls.
EncoderShare share_encoder(const Plan& plan, const ModelSpec& model, std::span<const Sample> batch,
                           const SamplesOfBins& bins, int j);

}  // namespace dflop
