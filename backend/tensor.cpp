#include "backend/tensor.hpp"

#include <string>
#include <type_traits>

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

namespace {

template <typename To, typename From>
void upload_as(const RankContext& rank, void* data, std::span<const From> values) {
  if (values.empty()) return;
  if constexpr (std::is_same_v<To, From>) {
    rank.compute.copy_to_device(data, values.data(), values.size_bytes());
  } else {
    const std::vector<To> converted(values.begin(), values.end());
    rank.compute.copy_to_device(data, converted.data(), converted.size() * sizeof(To));
  }
  rank.compute.synchronize();  // the numbers may go away
}

template <typename T>
std::vector<double> download_as(const RankContext& rank, const void* data, std::size_t count) {
  std::vector<T> values(count);
  if (count > 0) rank.compute.copy_to_host(values.data(), data, count * sizeof(T));
  rank.compute.synchronize();
  return {values.begin(), values.end()};
}

/// Whether numbers are f64; else they are f32.
bool is_wide(const RankContext& rank) {
  const DType dtype = rank.kernels.dtype();
  if (bytes_of(dtype) != sum_bytes_of(dtype)) {
    throw Error(ErrorKind::internal, "numbers are f32 or f64 here, not " + std::string(to_string(dtype)));
  }
  return dtype == DType::f64;
}

}  // namespace

void upload(const RankContext& rank, void* data, std::span<const float> values) {
  is_wide(rank) ? upload_as<double>(rank, data, values) : upload_as<float>(rank, data, values);
}

void upload(const RankContext& rank, void* data, std::span<const double> values) {
  is_wide(rank) ? upload_as<double>(rank, data, values) : upload_as<float>(rank, data, values);
}

std::vector<double> download(const RankContext& rank, const void* data, std::size_t count) {
  return is_wide(rank) ? download_as<double>(rank, data, count) : download_as<float>(rank, data, count);
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
