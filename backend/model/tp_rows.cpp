#include "backend/model/tp_rows.hpp"

#include <utility>

namespace dflop {
namespace {

/// Returns the rows of all ranks' shards together.
std::int64_t padded_rows(const RankContext& rank, std::int64_t rows) {
  return has_shards(rank) ? rank.tp_size() * held_rows(rank, rows) : rows;
}

void zero_rows_from(const RankContext& rank, Tensor& tensor, std::int64_t first) {
  if (first < tensor.rows()) rank.kernels.zero(rows_of(rank, Matrix(tensor), first, tensor.rows() - first));
}

}  // namespace

bool has_shards(const RankContext& rank) {
  return rank.sequence_parallel && rank.tp_size() > 1;
}

std::int64_t held_rows(const RankContext& rank, std::int64_t rows) {
  return has_shards(rank) ? round_up(rows, rank.tp_size()) / rank.tp_size() : rows;
}

AllRows::AllRows(const RankContext& rank, const Tensor& held, std::int64_t rows, const char* what)
    : all_(held) {
  if (!has_shards(rank) || held.empty()) return;
  gathered_ = Tensor(rank, rank.tp_size() * held.rows(), held.columns());
  rank.communicator.all_gather(gathered_.view().data, held.view().data,
                               static_cast<std::size_t>(held.view().size()), element_of(rank.kernels.dtype()),
                               rank.tp, rank.compute, what);
  all_ = rows_of(rank, std::as_const(gathered_).view(), 0, rows);
}

Tensor tp_summand(const RankContext& rank, std::int64_t rows, std::int64_t columns) {
  Tensor summand(rank, padded_rows(rank, rows), columns);
  zero_rows_from(rank, summand, rows);
  return summand;
}

Tensor tp_shard_sum(const RankContext& rank, Tensor summand, const char* what) {
  if (!has_shards(rank)) {
    tp_sum(rank, summand, what);
    return summand;
  }
  Tensor sum(rank, summand.rows() / rank.tp_size(), summand.columns());
  if (sum.empty()) return sum;
  rank.communicator.reduce_scatter(sum.view().data, std::as_const(summand).view().data,
                                   static_cast<std::size_t>(sum.view().size()),
                                   element_of(rank.kernels.dtype()), rank.tp, rank.compute, what);
  return sum;
}

void tp_sum(const RankContext& rank, Matrix matrix, const char* what) {
  if (rank.tp_size() == 1 || matrix.size() == 0) return;
  rank.communicator.all_reduce(matrix.data, static_cast<std::size_t>(matrix.size()),
                               element_of(rank.kernels.dtype()), rank.tp, rank.compute, what);
}

}  // namespace dflop
