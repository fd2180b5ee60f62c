// from_f16() converts an IEEE half-precision number (f16) to float. For bfloat16 see core/dtype.hpp.
#pragma once

#include <bit>
#include <cstdint>

namespace dflop {

/// Returns the exact value of the f16 whose bits are `half`: 1 bit of sign, 5 of exponent, 10 of fraction.
/// The exponent's bias is 15 for an f16 and 127 for an f32. So the bits, moved to their positions in an f32,
/// give a value that is too small by the factor 2^112. Multiplying by this factor is exact, also for
/// subnormal numbers.
constexpr float from_f16(std::uint16_t half) {
  const std::uint32_t magnitude = (half & 0x7FFFU) << 13;
  const auto finite = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112F);
  const bool is_special = (half & 0x7C00U) == 0x7C00U;  // infinity or NaN
  const std::uint32_t bits = is_special ? magnitude | 0x7F80'0000U : finite;
  return std::bit_cast<float>(bits | (half & 0x8000U) << 16);
}

}  // namespace dflop
