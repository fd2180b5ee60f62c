// One rank works with these: its device and its end of the communicator, and memory in the shape of matrices.
#pragma once

#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend/communicator.hpp"
#include "backend/device.hpp"
#include "kernels/kernels.hpp"

namespace dflop {

/// A RankContext has everything that a rank's computation needs. The parts outlive it.
struct RankContext {
  Device& device;
  DeviceStream& compute;
  Kernels& kernels;
  Communicator& communicator;
  RankGroup tp;     ///< the ranks that run in lockstep with this one, this one among them
  int tp_rank = 0;  ///< its place there
  bool sequence_parallel = false;

  int tp_size() const { return static_cast<int>(tp.ranks.size()); }
};

/// Returns memory for `count` values of so many bytes; none for no values. @throws OutOfMemory
std::unique_ptr<Buffer> allocate_values(const RankContext& rank, std::int64_t count, std::size_t bytes);

/// A DeviceMatrix is a matrix with its own memory; none without rows. A Tensor has activations or weights, a
/// SumTensor what is summed, which may need more precision (sum_bytes_of()).
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

/// Returns the rows [begin, begin + rows) of a matrix.
Matrix rows_of(const RankContext& rank, Matrix matrix, std::int64_t begin, std::int64_t rows);
ConstMatrix rows_of(const RankContext& rank, ConstMatrix matrix, std::int64_t begin, std::int64_t rows);

/// An IndexTensor has whole numbers in host and device memory.
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

/// Copies numbers to device memory as values of `element`, rounded where they do not fit. They may go away
/// when the call returns.
void upload(const RankContext& rank, void* data, Element element, std::span<const float> values);
void upload(const RankContext& rank, void* data, Element element, std::span<const double> values);
/// Copies values back as f64, and waits for the compute stream.
std::vector<double> download(const RankContext& rank, const void* data, Element element, std::size_t count);

/// These return the type of activations and weights, and that of sums, as collectives name them.
Element element_of(DType dtype);
Element sum_element_of(DType dtype);

}  // namespace dflop
