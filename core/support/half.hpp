// Numbers of 16 bits as others store them.
#pragma once

#include <bit>
#include <cstdint>

namespace dflop {

/// Returns the number whose bits as an f16 (5 bits of exponent, 10 of fraction) these are; exact. An f16 has
/// the exponent's bias 15 where f32 has 127: its bits, moved into the places of an f32's, are too small
/// by 2^112. The product with it is exact, of subnormal numbers, too.
constexpr float from_f16(std::uint16_t half) {
  const std::uint32_t magnitude = (half & 0x7FFFU) << 13;
  const auto finite = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112F);
  const bool is_special = (half & 0x7C00U) == 0x7C00U;  // infinity or NaN
  const std::uint32_t bits = is_special ? magnitude | 0x7F80'0000U : finite;
  return std::bit_cast<float>(bits | (half & 0x8000U) << 16);
}

}  // namespace dflop
