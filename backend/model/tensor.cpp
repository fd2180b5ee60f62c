#include "backend/model/tensor.hpp"

#include <algorithm>
#include <type_traits>

#include "core/support/bytes.hpp"
#include "kernels/dtype.hpp"

namespace dflop {

std::unique_ptr<Buffer> allocate_values(const RankContext& rank, std::int64_t count, std::size_t bytes) {
  if (count == 0) return nullptr;
  return rank.device.allocate(static_cast<std::size_t>(count) * bytes);
}

Matrix rows_of(const RankContext& rank, Matrix matrix, std::int64_t begin, std::int64_t rows) {
  if (rows == 0) return {nullptr, 0, matrix.columns};
  const auto before = static_cast<std::size_t>(begin * matrix.columns) * bytes_of(rank.kernels.dtype());
  return {offset(matrix.data, before), rows, matrix.columns};
}

ConstMatrix rows_of(const RankContext& rank, ConstMatrix matrix, std::int64_t begin, std::int64_t rows) {
  if (rows == 0) return {nullptr, 0, matrix.columns};
  const auto before = static_cast<std::size_t>(begin * matrix.columns) * bytes_of(rank.kernels.dtype());
  return {offset(matrix.data, before), rows, matrix.columns};
}

IndexTensor::IndexTensor(const RankContext& rank, std::vector<std::int32_t> numbers)
    : host_(std::move(numbers)), buffer_(allocate_values(rank, size(), sizeof(std::int32_t))) {
  if (buffer_)
    rank.compute.copy_to_device(buffer_->data(), host_.data(), host_.size() * sizeof(std::int32_t));
}

namespace {

template <typename To, typename From>
To as(From value) {
  if constexpr (std::is_same_v<To, BFloat16>) {
    return to_bfloat16(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

template <typename To, typename From>
void upload_as(const RankContext& rank, void* data, std::span<const From> values) {
  if (values.empty()) return;
  if constexpr (std::is_same_v<To, From>) {
    rank.compute.copy_to_device(data, values.data(), values.size_bytes());
  } else {
    std::vector<To> converted(values.size());
    std::transform(values.begin(), values.end(), converted.begin(), as<To, From>);
    rank.compute.copy_to_device(data, converted.data(), converted.size() * sizeof(To));
  }
}

template <typename From>
void upload_all(const RankContext& rank, void* data, Element element, std::span<const From> values) {
  switch (element) {
    case Element::f32:
      return upload_as<float>(rank, data, values);
    case Element::f64:
      return upload_as<double>(rank, data, values);
    case Element::bf16:
      return upload_as<BFloat16>(rank, data, values);
  }
}

template <typename T>
std::vector<T> values_at(const RankContext& rank, const void* data, std::size_t count) {
  std::vector<T> values(count);
  if (count > 0) rank.compute.copy_to_host(values.data(), data, count * sizeof(T));
  rank.compute.synchronize();
  return values;
}

}  // namespace

void upload(const RankContext& rank, void* data, Element element, std::span<const float> values) {
  upload_all(rank, data, element, values);
}

void upload(const RankContext& rank, void* data, Element element, std::span<const double> values) {
  upload_all(rank, data, element, values);
}

std::vector<double> download(const RankContext& rank, const void* data, Element element, std::size_t count) {
  if (element == Element::f64) return values_at<double>(rank, data, count);
  if (element == Element::f32) {
    const auto values = values_at<float>(rank, data, count);
    return {values.begin(), values.end()};
  }
  const auto values = values_at<BFloat16>(rank, data, count);
  std::vector<double> wide(values.size());
  std::transform(values.begin(), values.end(), wide.begin(), [](BFloat16 value) { return to_float(value); });
  return wide;
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
