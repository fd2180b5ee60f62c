// bfloat16 on the host: the upper half of a float.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace dflop {

struct BFloat16 {
  std::uint16_t bits = 0;
};

inline float to_float(BFloat16 value) {
  return std::bit_cast<float>(std::uint32_t{value.bits} << 16);
}

/// To the nearest, ties to even; beyond the largest it is infinity, and NaN stays NaN.
inline BFloat16 to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // Rounding could carry a NaN over to zero; the bit set here keeps it one.
  if (std::isnan(value)) return {static_cast<std::uint16_t>(bits >> 16 | 0x40U)};
  const std::uint32_t half = 0x7FFFU + (bits >> 16 & 1U);
  return {static_cast<std::uint16_t>((bits + half) >> 16)};
}

}  // namespace dflop
