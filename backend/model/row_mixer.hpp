// A RowMixer computes the rows of a RowMix on a device.
#pragma once

#include <cstdint>

#include "backend/model/tensor.hpp"
#include "core/content/row_mix.hpp"

namespace dflop {

/// A RowMixer holds a RowMix in device memory and applies it.
class RowMixer {
 public:
  RowMixer() = default;
  RowMixer(const RankContext& rank, const RowMix& mix);

  std::int64_t rows() const { return begin_.size(); }
  /// Returns the weighted sums of the rows of x that the RowMix describes.
  Tensor operator()(const RankContext& rank, ConstMatrix x) const;

 private:
  IndexTensor begin_;
  IndexTensor end_;
  IndexTensor index_;
  SumTensor weights_;
};

}  // namespace dflop
