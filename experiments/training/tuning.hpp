// What is worth tuning follows from the microbatches that a data set gives.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/profile/kernel_bench.hpp"
#include "core/measured/profile.hpp"
#include "core/model.hpp"
#include "core/sample.hpp"
#include "kernels/dtype.hpp"

namespace dflop {

/// MicrobatchDraws say which microbatches stand for a data set.
struct MicrobatchDraws {
  std::vector<int> sizes{1, 2, 4, 8};  ///< samples of a microbatch on one rank
  int of_each = 64;                    ///< microbatches of each size
  std::uint64_t seed = 1;
};

/// Returns the work of microbatches of samples that are drawn at random.
std::vector<Work> draw_microbatches(std::span<const Sample> samples, const MicrobatchDraws& draws);

/// Returns what one rank of a stage of each mode calls in forward and backward of these microbatches with
/// all layers of the model, itself, not the middle of its buckets; `weight` counts calls.
/// @param row_alignment  of the device (Device::row_alignment())
/// @pre tp splits the model
std::vector<TunedCall> calls_of_microbatches(const ModelSpec& model, const std::vector<TpMode>& modes,
                                             std::span<const Work> microbatches, DType dtype,
                                             int row_alignment = 1);

/// Returns one call for each key of these, in the middle of its buckets, with the sum of their weights.
std::vector<TunedCall> calls_by_key(std::span<const TunedCall> calls);

}  // namespace dflop
