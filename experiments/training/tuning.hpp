// This file derives the kernel calls worth tuning from the microbatches of a data set.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/profile/kernel_bench.hpp"
#include "core/dtype.hpp"
#include "core/measured/profile.hpp"
#include "core/model.hpp"
#include "core/sample.hpp"

namespace dflop {

/// MicrobatchDraws defines the random microbatches that represent a data set.
struct MicrobatchDraws {
  std::vector<int> sizes{1, 2, 4, 8};  ///< samples per microbatch on one rank
  int of_each = 64;                    ///< number of microbatches of each size
  std::uint64_t seed = 1;
};

/// Returns the work of microbatches of randomly drawn samples.
std::vector<Work> draw_microbatches(std::span<const Sample> samples, const MicrobatchDraws& draws);

/// Returns the calls of one rank of a stage with all layers of the model, in each mode, in the forward and
/// backward passes of these microbatches. Calls have their exact sizes, not the middle of their buckets;
/// `weight` counts them.
/// @param row_alignment  of the device (Device::row_alignment())
/// @pre tp splits the model
std::vector<TunedCall> calls_of_microbatches(const ModelSpec& model, const std::vector<TpMode>& modes,
                                             std::span<const Work> microbatches, DType dtype,
                                             int row_alignment = 1);

/// Returns one call for each key of these calls, in the middle of its buckets, with the sum of their weights.
std::vector<TunedCall> calls_by_key(std::span<const TunedCall> calls);

}  // namespace dflop
