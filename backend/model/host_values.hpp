// The encoder's inputs lie once in host memory, in the precision of a run; their readers share them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/model/tensor.hpp"
#include "kernels/dtype.hpp"

namespace dflop {

/// HostValues are numbers in host memory in one precision. Copies share the memory, which nobody changes and
/// which is there as long as one of them.
class HostValues {
 public:
  HostValues() = default;
  /// Takes values of f32.
  HostValues(std::vector<float> values);  // NOLINT: they are some

  DType dtype() const { return dtype_; }
  std::int64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const std::byte* data() const { return data_.get(); }

  /// Returns values of f32 rounded to a precision, as upload() rounds them; in the precision that they have,
  /// the same memory. @throws Error (internal) from another precision, where bits are lost already
  HostValues as(DType dtype) const;

 private:
  std::shared_ptr<const std::byte> data_;
  std::int64_t size_ = 0;
  DType dtype_ = DType::f32;
};

/// Copies `count` values from `begin` on to device memory, in the rank's precision: unchanged where they
/// have it, else rounded before. They may go away when the call returns.
void upload(const RankContext& rank, void* data, const HostValues& values, std::int64_t begin,
            std::int64_t count);

}  // namespace dflop
