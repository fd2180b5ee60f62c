// Rows of activations lie between the regions of tensor parallelism: each rank has all of them or, with
// sequence parallelism, its shard (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large
// Transformer Models", section 4.2.2). Shards are of equal length: the last ones end with rows of no token.
#pragma once

#include <cstdint>

#include "backend/model/tensor.hpp"

namespace dflop {

/// Returns whether the ranks of this rank's tp group have shards.
bool has_shards(const RankContext& rank);

/// Returns how many rows a rank holds of `rows`: its shard's, rows of no token included, or all.
std::int64_t held_rows(const RankContext& rank, std::int64_t rows);

/// AllRows are all `rows` rows, each rank of the tp group having `held`; gathered where these are shards,
/// else the same memory, which outlives this. `what` is for messages.
class AllRows {
 public:
  AllRows() = default;
  AllRows(const RankContext& rank, const Tensor& held, std::int64_t rows, const char* what);

  operator ConstMatrix() const { return all_; }  // NOLINT: it is one
  bool empty() const { return all_.size() == 0; }

 private:
  Tensor gathered_;
  ConstMatrix all_;
};

/// Returns memory for a summand of tp_shard_sum(): `rows` rows to be filled, then rows of zeros up to whole
/// shards.
Tensor tp_summand(const RankContext& rank, std::int64_t rows, std::int64_t columns);

/// Returns the sum of the tp ranks' summands: this rank's shard of it, without shards all.
Tensor tp_shard_sum(const RankContext& rank, Tensor summand, const char* what);

/// Sums the tp ranks' matrices in place, on all of them.
void tp_sum(const RankContext& rank, Matrix matrix, const char* what);

}  // namespace dflop
