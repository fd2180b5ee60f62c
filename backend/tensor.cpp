#include "backend/tensor.hpp"

#include "core/error.hpp"

namespace dflop {
namespace {

std::unique_ptr<Buffer> allocate(const RankContext& rank, std::int64_t count, std::size_t bytes) {
  if (count == 0) return nullptr;
  return rank.device.allocate(static_cast<std::size_t>(count) * bytes);
}

}  // namespace

Tensor::Tensor(const RankContext& rank, std::int64_t rows, std::int64_t columns)
    : buffer_(allocate(rank, rows * columns, bytes_of(rank.kernels.dtype()))),
      rows_(rows),
      columns_(columns) {}

SumTensor::SumTensor(const RankContext& rank, std::int64_t rows, std::int64_t columns)
    : buffer_(allocate(rank, rows * columns, sum_bytes_of(rank.kernels.dtype()))),
      rows_(rows),
      columns_(columns) {}

Matrix rows_of(const RankContext& rank, Matrix matrix, std::int64_t begin, std::int64_t rows) {
  if (rows == 0) return {nullptr, 0, matrix.columns};
  const auto offset = static_cast<std::size_t>(begin * matrix.columns) * bytes_of(rank.kernels.dtype());
  return {static_cast<std::byte*>(matrix.data) + offset, rows, matrix.columns};
}

ConstMatrix rows_of(const RankContext& rank, ConstMatrix matrix, std::int64_t begin, std::int64_t rows) {
  if (rows == 0) return {nullptr, 0, matrix.columns};
  const auto offset = static_cast<std::size_t>(begin * matrix.columns) * bytes_of(rank.kernels.dtype());
  return {static_cast<const std::byte*>(matrix.data) + offset, rows, matrix.columns};
}

IndexTensor::IndexTensor(const RankContext& rank, std::vector<std::int32_t> numbers)
    : host_(std::move(numbers)), buffer_(allocate(rank, size(), sizeof(std::int32_t))) {
  if (buffer_)
    rank.compute.copy_to_device(buffer_->data(), host_.data(), host_.size() * sizeof(std::int32_t));
}

void upload(const RankContext& rank, Matrix matrix, std::span<const float> values) {
  if (values.empty()) return;
  switch (rank.kernels.dtype()) {
    case DType::f32:
      rank.compute.copy_to_device(matrix.data, values.data(), values.size_bytes());
      break;
    case DType::f64: {
      const std::vector<double> wide(values.begin(), values.end());
      rank.compute.copy_to_device(matrix.data, wide.data(), wide.size() * sizeof(double));
      break;
    }
    case DType::bf16:
      throw Error(ErrorKind::internal, "no conversion to bf16 on the host");
  }
  rank.compute.synchronize();  // the numbers may go away
}

double read_sum(const RankContext& rank, ConstSums sum) {
  float narrow = 0;
  double wide = 0;
  const bool is_wide = rank.kernels.dtype() == DType::f64;
  void* number = is_wide ? static_cast<void*>(&wide) : &narrow;
  rank.compute.copy_to_host(number, sum.data, is_wide ? sizeof wide : sizeof narrow);
  rank.compute.synchronize();
  return is_wide ? wide : narrow;
}

void tp_all_reduce(const RankContext& rank, Matrix matrix, const char* what) {
  if (rank.tp_size() == 1 || matrix.size() == 0) return;
  rank.communicator.all_reduce(matrix.data, static_cast<std::size_t>(matrix.size()),
                               element_of(rank.kernels.dtype()), rank.tp, rank.compute, what);
}

Element element_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return Element::f32;
    case DType::f64:
      return Element::f64;
    case DType::bf16:
      return Element::bf16;
  }
  return Element::f32;
}

Element sum_element_of(DType dtype) {
  return dtype == DType::f64 ? Element::f64 : Element::f32;
}

}  // namespace dflop
