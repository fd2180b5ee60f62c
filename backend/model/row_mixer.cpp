#include "backend/model/row_mixer.hpp"

#include <span>

namespace dflop {

RowMixer::RowMixer(const RankContext& rank, const RowMix& mix)
    : begin_(rank, mix.begin),
      end_(rank, mix.end),
      index_(rank, mix.index),
      weights_(rank, 1, static_cast<std::int64_t>(mix.weights.size())) {
  if (weights_.empty()) return;
  upload(rank, weights_.view().data, sum_type_of(rank.kernels.dtype()), std::span<const double>(mix.weights));
}

Tensor RowMixer::operator()(const RankContext& rank, ConstMatrix x) const {
  Tensor y(rank, rows(), x.columns);
  rank.kernels.mix_rows(y, x, begin_, end_, index_, weights_);
  return y;
}

}  // namespace dflop
