#include "core/content/host_values.hpp"

#include <span>
#include <string>
#include <utility>

#include "core/error.hpp"

namespace dflop {

HostValues::HostValues(std::vector<float> values) : size_(std::ssize(values)) {
  const auto owner = std::make_shared<const std::vector<float>>(std::move(values));
  data_ = {owner, reinterpret_cast<const std::byte*>(owner->data())};
}

HostValues HostValues::as(DType dtype) const {
  if (dtype == dtype_ || empty()) return *this;
  if (dtype_ != DType::f32) {
    throw Error(ErrorKind::internal, "the dtype of the values is " + std::string(to_string(dtype_)) +
                                         ", but they are requested as " + std::string(to_string(dtype)));
  }
  const auto count = static_cast<std::size_t>(size_);
  const std::shared_ptr<std::byte[]> memory(new std::byte[count * bytes_of(dtype)]);  // NOLINT: not zeroed
  convert(std::span(reinterpret_cast<const float*>(data()), count), dtype, memory.get());
  HostValues converted;
  converted.data_ = {memory, memory.get()};
  converted.size_ = size_;
  converted.dtype_ = dtype;
  return converted;
}

}  // namespace dflop
