// A RowMixer computes weighted sums of rows, as a RowMix defines them, on a device.
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
  /// Returns the mix's weighted sums of rows of x.
  Tensor operator()(const RankContext& rank, ConstMatrix x) const;

 private:
  IndexTensor begin_;
  IndexTensor end_;
  IndexTensor index_;
  SumTensor weights_;
};

}  // namespace dflop
