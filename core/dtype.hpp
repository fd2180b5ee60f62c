// DType is the precision in which operations compute. BFloat16 provides bfloat16 on the host.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "core/names.hpp"
#include "core/units.hpp"

namespace dflop {

/// A DType is the precision of activations and weights. Sums (statistics, gradients of weights, optimizer
/// states, master weights) are f64 if activations are f64, else f32.
enum class DType : std::uint8_t { f32, f64, bf16 };

template <>
inline constexpr NameTable<DType, 3> kNames<DType> = {
    {{DType::f32, "f32"}, {DType::f64, "f64"}, {DType::bf16, "bf16"}}};

/// Returns the bytes of one value.
constexpr std::size_t bytes_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return kFp32Bytes;
    case DType::f64:
      return kFp64Bytes;
    case DType::bf16:
      return kBf16Bytes;
  }
  return 0;
}

/// Returns the type of sums for values of type `dtype`.
constexpr DType sum_type_of(DType dtype) {
  return dtype == DType::f64 ? DType::f64 : DType::f32;
}

/// Returns the bytes of one sum.
constexpr std::size_t sum_bytes_of(DType dtype) {
  return bytes_of(sum_type_of(dtype));
}

/// A bfloat16 is the upper half of a float.
struct BFloat16 {
  std::uint16_t bits = 0;
};

inline float to_float(BFloat16 value) {
  return std::bit_cast<float>(std::uint32_t{value.bits} << 16);
}

/// Rounds to nearest, ties to even. Values beyond the largest bfloat16 become infinity; NaN stays NaN.
inline BFloat16 to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // Rounding could turn a NaN into zero; the bit set here keeps it a NaN.
  if (std::isnan(value)) return {static_cast<std::uint16_t>(bits >> 16 | 0x40U)};
  const std::uint32_t half = 0x7FFFU + (bits >> 16 & 1U);
  return {static_cast<std::uint16_t>((bits + half) >> 16)};
}

/// Converts a value between the host types float, double and BFloat16, rounding if needed.
template <typename To, typename From>
To convert_value(From value) {
  if constexpr (std::is_same_v<To, BFloat16>) {
    return to_bfloat16(static_cast<float>(value));
  } else if constexpr (std::is_same_v<From, BFloat16>) {
    return static_cast<To>(to_float(value));
  } else {
    return static_cast<To>(value);
  }
}

/// Calls f with a zero of the host type of `dtype`: float, double or BFloat16.
template <typename F>
auto with_zero_of(DType dtype, const F& f) {
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::f64:
      return f(double{});
    case DType::bf16:
      break;
  }
  return f(BFloat16{});
}

/// Converts float or double numbers to a precision and writes them to host memory, rounding if needed.
template <std::floating_point From>
void convert(std::span<const From> values, DType dtype, void* out) {
  with_zero_of(dtype, [&](auto zero) {
    using To = decltype(zero);
    std::transform(values.begin(), values.end(), static_cast<To*>(out), convert_value<To, From>);
  });
}

}  // namespace dflop
