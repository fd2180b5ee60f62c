// A RankContext bundles the device, kernels and communicator of one rank; a Tensor is a matrix in the
// device's memory. This header also declares functions that gather and sum rows over a tensor-parallel (tp)
// group.
//
// Between the tensor-parallel regions, each rank holds all rows of the activations or, with sequence
// parallelism, a shard of the rows (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large
// Transformer Models", section 4.2.2). All shards have equal length; the last ones are padded with rows that
// belong to no token.
#pragma once

#include <concepts>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend/world.hpp"
#include "core/content/host_values.hpp"
#include "core/support/bytes.hpp"
#include "kernels/kernels.hpp"

namespace dflop {

/// A RankContext holds everything that a rank's computation needs. The referenced objects must outlive it.
struct RankContext {
  Device& device;
  DeviceStream& compute;
  Kernels& kernels;
  Communicator& communicator;
  RankGroup tp;     ///< the tp group: the ranks that run in lockstep with this one, including this one
  int tp_rank = 0;  ///< this rank's index in `tp`
  bool sequence_parallel = false;

  int tp_size() const { return static_cast<int>(tp.ranks.size()); }
};

/// Returns the context of a rank that has index `tp_rank` in its tp group. By default the group consists of
/// rank 0 only.
inline RankContext context_of(const LocalRank& rank, const RankGroup& tp = {{0}}, int tp_rank = 0,
                              bool sequence_parallel = false) {
  return {*rank.device, *rank.stream, *rank.kernels, *rank.communicator, tp, tp_rank, sequence_parallel};
}

/// Returns memory for `count` values of `bytes` bytes each, or null if `count` is 0. @throws OutOfMemory
std::unique_ptr<Buffer> allocate_values(const RankContext& rank, std::int64_t count, std::size_t bytes);

/// A DeviceMatrix is a matrix that owns its device memory. An empty matrix has no memory. A Tensor holds
/// activations or weights. A SumTensor holds sums, which may need more precision (sum_bytes_of()).
template <typename View, typename ConstView>
class DeviceMatrix {
 public:
  DeviceMatrix() = default;
  DeviceMatrix(const RankContext& rank, std::int64_t rows, std::int64_t columns)
      : buffer_(allocate_values(rank, rows * columns,
                                std::is_same_v<View, Sums> ? sum_bytes_of(rank.kernels.dtype())
                                                           : bytes_of(rank.kernels.dtype()))),
        rows_(rows),
        columns_(columns) {}

  operator View() { return view(); }             // NOLINT: it is one
  operator ConstView() const { return view(); }  // NOLINT
  View view() { return {buffer_ ? buffer_->data() : nullptr, rows_, columns_}; }
  ConstView view() const { return {buffer_ ? std::as_const(*buffer_).data() : nullptr, rows_, columns_}; }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  bool empty() const { return rows_ * columns_ == 0; }

 private:
  std::unique_ptr<Buffer> buffer_;
  std::int64_t rows_ = 0;
  std::int64_t columns_ = 0;
};
using Tensor = DeviceMatrix<Matrix, ConstMatrix>;
using SumTensor = DeviceMatrix<Sums, ConstSums>;

/// A ValueMatrix is a Matrix or ConstMatrix, not a matrix of sums.
template <typename AnyMatrix>
concept ValueMatrix = std::same_as<AnyMatrix, Matrix> || std::same_as<AnyMatrix, ConstMatrix>;

/// Returns the rows [begin, begin + rows) of a matrix.
template <ValueMatrix AnyMatrix>
AnyMatrix rows_of(const RankContext& rank, AnyMatrix matrix, std::int64_t begin, std::int64_t rows) {
  if (rows == 0) return {nullptr, 0, matrix.columns};
  const auto before = static_cast<std::size_t>(begin * matrix.columns) * bytes_of(rank.kernels.dtype());
  return {offset(matrix.data, before), rows, matrix.columns};
}

/// An IndexTensor holds integers in host and device memory.
class IndexTensor {
 public:
  IndexTensor() = default;
  IndexTensor(const RankContext& rank, std::vector<std::int32_t> numbers);

  operator Indices() const {  // NOLINT: it is one
    return {host_, buffer_ ? static_cast<const std::int32_t*>(std::as_const(*buffer_).data()) : nullptr};
  }
  std::int64_t size() const { return static_cast<std::int64_t>(host_.size()); }

 private:
  std::vector<std::int32_t> host_;
  std::unique_ptr<Buffer> buffer_;
};

/// Copies numbers to device memory, converted to `element`. `values` may be freed when the call returns.
template <std::floating_point From>
void upload(const RankContext& rank, void* data, DType element, std::span<const From> values);
/// Copies `count` values, starting at `begin`, to device memory in the rank's precision, rounding them if
/// needed. The values may be freed when the call returns.
void upload(const RankContext& rank, void* data, const HostValues& values, std::int64_t begin,
            std::int64_t count);
/// Copies values of type `element` from device memory to `out`, and waits for the compute stream.
template <std::floating_point To>
void download(const RankContext& rank, const void* data, DType element, std::span<To> out);
/// Returns `count` values of type `element` from device memory as f64, and waits for the compute stream.
std::vector<double> download(const RankContext& rank, const void* data, DType element, std::size_t count);

/// Returns whether each rank of this rank's tp group holds only a shard of the rows, because of sequence
/// parallelism.
bool has_shards(const RankContext& rank);

/// Returns the number of rows that a rank holds of a matrix of `rows` rows: the length of its shard,
/// including padding, or all rows if there are no shards.
std::int64_t held_rows(const RankContext& rank, std::int64_t rows);

/// AllRows gives access to a whole matrix of `rows` rows, of which each rank of the tp group holds the part
/// `held`. If the ranks hold shards, it gathers them. Otherwise it refers to `held`, which must outlive it.
/// `what` names the matrix in messages.
class AllRows {
 public:
  AllRows() = default;
  /// Refers to a matrix that every rank holds completely.
  explicit AllRows(ConstMatrix all) : all_(all) {}
  AllRows(const RankContext& rank, const Tensor& held, std::int64_t rows, const char* what);

  operator ConstMatrix() const { return all_; }  // NOLINT: it is one
  bool empty() const { return all_.size() == 0; }

 private:
  Tensor gathered_;
  ConstMatrix all_;
};

/// Returns memory for a summand of tp_shard_sum(). The caller must fill the first `rows` rows. If the ranks
/// hold shards, rows of zeros follow, so that all shards have equal length.
Tensor tp_summand(const RankContext& rank, std::int64_t rows, std::int64_t columns);

/// Returns the sum of the tp ranks' summands: this rank's shard of its rows, or all rows if there are no
/// shards.
Tensor tp_shard_sum(const RankContext& rank, Tensor summand, const char* what);

/// Sums the tp ranks' matrices in place; all ranks get the sum.
void tp_sum(const RankContext& rank, Matrix matrix, const char* what);

}  // namespace dflop
