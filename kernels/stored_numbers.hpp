// StoredNumbers are numbers in device memory in the type in which a file stores them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/units.hpp"

namespace dflop {

/// A NumberType is the type of numbers in a file.
enum class NumberType : std::uint8_t { f64, f32, f16, bf16 };

/// Returns the bytes of one number.
constexpr std::size_t bytes_of(NumberType type) {
  switch (type) {
    case NumberType::f64:
      return kFp64Bytes;
    case NumberType::f32:
      return kFp32Bytes;
    case NumberType::f16:
    case NumberType::bf16:
      return kBf16Bytes;
  }
  return 0;
}

/// StoredNumbers refer to contiguous numbers in device memory, each aligned to its size.
struct StoredNumbers {
  NumberType type = NumberType::f32;
  const void* data = nullptr;
  std::int64_t count = 0;
};

/// Calls f with a pointer to the numbers. F64, F32, F16 and BF16 are the device's types for the NumberTypes.
template <typename F64, typename F32, typename F16, typename BF16, typename F>
void with_numbers(const StoredNumbers& x, const F& f) {
  switch (x.type) {
    case NumberType::f64:
      return f(static_cast<const F64*>(x.data));
    case NumberType::f32:
      return f(static_cast<const F32*>(x.data));
    case NumberType::f16:
      return f(static_cast<const F16*>(x.data));
    case NumberType::bf16:
      return f(static_cast<const BF16*>(x.data));
  }
}

/// Returns `count` of the numbers of `all`, from number `first` on.
inline StoredNumbers part_of(const StoredNumbers& all, std::int64_t first, std::int64_t count) {
  const auto before = static_cast<std::size_t>(first) * bytes_of(all.type);
  return {all.type, static_cast<const std::byte*>(all.data) + before, count};
}

}  // namespace dflop
