// What one rank works with: its device and its end of the communicator, and memory in the shape of matrices.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backend/communicator.hpp"
#include "backend/device.hpp"
#include "kernels/kernels.hpp"

namespace dflop {

/// Everything that a rank's computation needs. The parts outlive it.
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

/// A matrix with its own memory; none without rows.
class Tensor {
 public:
  Tensor() = default;
  Tensor(const RankContext& rank, std::int64_t rows, std::int64_t columns);

  operator Matrix() { return view(); }             // NOLINT: it is one
  operator ConstMatrix() const { return view(); }  // NOLINT
  Matrix view() { return {buffer_ ? buffer_->data() : nullptr, rows_, columns_}; }
  ConstMatrix view() const { return {buffer_ ? std::as_const(*buffer_).data() : nullptr, rows_, columns_}; }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  bool empty() const { return rows_ * columns_ == 0; }

 private:
  std::unique_ptr<Buffer> buffer_;
  std::int64_t rows_ = 0;
  std::int64_t columns_ = 0;
};

/// The same of sums.
class SumTensor {
 public:
  SumTensor() = default;
  SumTensor(const RankContext& rank, std::int64_t rows, std::int64_t columns);

  operator Sums() { return view(); }             // NOLINT: it is one
  operator ConstSums() const { return view(); }  // NOLINT
  Sums view() { return {buffer_ ? buffer_->data() : nullptr, rows_, columns_}; }
  ConstSums view() const { return {buffer_ ? std::as_const(*buffer_).data() : nullptr, rows_, columns_}; }

 private:
  std::unique_ptr<Buffer> buffer_;
  std::int64_t rows_ = 0;
  std::int64_t columns_ = 0;
};

/// The rows [begin, begin + rows) of a matrix.
Matrix rows_of(const RankContext& rank, Matrix matrix, std::int64_t begin, std::int64_t rows);
ConstMatrix rows_of(const RankContext& rank, ConstMatrix matrix, std::int64_t begin, std::int64_t rows);

/// Whole numbers in host and device memory.
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
/// The same back, which waits for the compute stream.
std::vector<double> download(const RankContext& rank, const void* data, Element element, std::size_t count);

Element element_of(DType dtype);
Element sum_element_of(DType dtype);

}  // namespace dflop
