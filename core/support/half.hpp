// This header converts 16-bit floating-point numbers.
#pragma once

#include <bit>
#include <cstdint>

namespace dflop {

/// Returns the number with these bits as an f16 (5 bits of exponent, 10 of fraction), exactly. The exponent's
/// bias is 15 for an f16 and 127 for an f32, so the bits moved to an f32's positions give a value too small
/// by 2^112. Multiplying by it is exact, also for subnormal numbers.
constexpr float from_f16(std::uint16_t half) {
  const std::uint32_t magnitude = (half & 0x7FFFU) << 13;
  const auto finite = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112F);
  const bool is_special = (half & 0x7C00U) == 0x7C00U;  // infinity or NaN
  const std::uint32_t bits = is_special ? magnitude | 0x7F80'0000U : finite;
  return std::bit_cast<float>(bits | (half & 0x8000U) << 16);
}

}  // namespace dflop
