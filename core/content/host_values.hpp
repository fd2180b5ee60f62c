// HostValues hold the encoder's inputs in host memory, once for all readers, in the run's precision.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/dtype.hpp"

namespace dflop {

/// HostValues are immutable numbers of one precision in host memory. Copies share the memory, which lives as
/// long as any of them.
class HostValues {
 public:
  HostValues() = default;
  /// Takes f32 values.
  HostValues(std::vector<float> values);  // NOLINT: they are some

  DType dtype() const { return dtype_; }
  std::int64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const std::byte* data() const { return data_.get(); }

  /// Returns the values rounded to `dtype` by convert(). If they have this precision already, the
  /// result shares the memory.
  /// @throws Error (internal) if the values' precision is neither f32 nor `dtype`, because bits are already
  /// lost
  HostValues as(DType dtype) const;

 private:
  std::shared_ptr<const std::byte> data_;
  std::int64_t size_ = 0;
  DType dtype_ = DType::f32;
};

}  // namespace dflop
