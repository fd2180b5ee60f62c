#include "traces/weights/dtype.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/error.hpp"
#include "core/support/half.hpp"

namespace dflop {
namespace {

static_assert(std::endian::native == std::endian::little, "files are the memory of a little-endian machine");
static_assert(std::numeric_limits<float>::is_iec559 && std::numeric_limits<double>::is_iec559);

constexpr std::uint32_t kSign = 0x8000'0000;
constexpr std::uint32_t kInfinity = 0x7F80'0000;  // as f32: all exponent bits

[[noreturn]] void refuse_dtype(Dtype dtype) {
  throw Error(ErrorKind::internal, "no conversion is known of the dtype " + std::string(to_string(dtype)));
}

float from_bf16(std::uint16_t half) {
  return std::bit_cast<float>(std::uint32_t{half} << 16);
}

/// Converts the `Stored` numbers at `bytes`, each by `convert`.
template <typename Stored, typename Real, typename Convert>
void decode_each(const std::byte* bytes, std::span<Real> out, Convert convert) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes + i * sizeof stored, sizeof stored);
    out[i] = static_cast<Real>(convert(stored));
  }
}

template <typename Real>
void decode_any(Dtype dtype, const std::byte* bytes, std::span<Real> out) {
  const auto same = [](auto value) { return value; };
  if (dtype == Dtype::f64) return decode_each<double>(bytes, out, same);
  if (dtype == Dtype::f32) return decode_each<float>(bytes, out, same);
  if (dtype == Dtype::f16) return decode_each<std::uint16_t>(bytes, out, from_f16);
  if (dtype == Dtype::bf16) return decode_each<std::uint16_t>(bytes, out, from_bf16);
  refuse_dtype(dtype);
}

/// Rounds the bits of an f32 to their upper half, to nearest even.
std::uint16_t rounded_to_bf16(std::uint32_t bits) {
  const bool is_nan = (bits & ~kSign) > kInfinity;
  // A NaN whose fraction is only in the lower half must not become infinity: set its first fraction bit.
  const std::uint32_t nan = (bits >> 16) | 0x40;
  const std::uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  return static_cast<std::uint16_t>(is_nan ? nan : rounded);
}

/// Rounds the bits of an f32 to an f16, to nearest even.
std::uint16_t rounded_to_f16(std::uint32_t bits) {
  constexpr std::uint32_t kHalfInfinity = 0x7C00;
  constexpr std::uint32_t kSmallestNormal = 0x3880'0000;  // 2^-14, as f32
  constexpr std::uint32_t kBiasDifference = 112U << 23;
  const std::uint32_t sign = bits >> 16 & 0x8000;
  const std::uint32_t magnitude = bits & ~kSign;
  if (magnitude > kInfinity) {
    return static_cast<std::uint16_t>(sign | kHalfInfinity | 0x200 | (magnitude >> 13 & 0x3FF));
  }
  if (magnitude < kSmallestNormal) {
    // f32 numbers from 0.5 on are 2^-24 apart, like subnormal f16, so the sum is rounded the same way.
    const float sum = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(sum) - 0x3F00'0000));
  }
  const std::uint32_t rounded = (magnitude - kBiasDifference + 0xFFF + (magnitude >> 13 & 1)) >> 13;
  return static_cast<std::uint16_t>(sign | std::min(rounded, kHalfInfinity));
}

std::uint32_t bits_before_rounding(float value) {
  return std::bit_cast<std::uint32_t>(value);
}

/// Rounding a double to f32 and then to 16 bits would round twice. So it is truncated to f32, and the last
/// bit records whether anything was lost: the second rounding then knows on which side of the middle the
/// value is (rounding to odd, Boldo and Melquiond 2008).
std::uint32_t bits_before_rounding(double value) {
  const auto single = static_cast<float>(value);
  const auto back = static_cast<double>(single);
  auto bits = std::bit_cast<std::uint32_t>(single);
  bits -= static_cast<std::uint32_t>(std::abs(back) > std::abs(value));
  bits |= static_cast<std::uint32_t>(back < value || back > value);
  return bits;
}

template <typename Stored, typename Real, typename Convert>
void encode_each(std::span<const Real> values, std::byte* out, Convert convert) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto stored = static_cast<Stored>(convert(values[i]));
    std::memcpy(out + i * sizeof stored, &stored, sizeof stored);
  }
}

template <typename Real>
void encode_any(Dtype dtype, std::span<const Real> values, std::byte* out) {
  const auto same = [](Real value) { return value; };
  if (dtype == Dtype::f64) return encode_each<double>(values, out, same);
  if (dtype == Dtype::f32) return encode_each<float>(values, out, same);
  if (dtype == Dtype::f16) {
    return encode_each<std::uint16_t>(values, out,
                                      [](Real value) { return rounded_to_f16(bits_before_rounding(value)); });
  }
  if (dtype == Dtype::bf16) {
    return encode_each<std::uint16_t>(
        values, out, [](Real value) { return rounded_to_bf16(bits_before_rounding(value)); });
  }
  refuse_dtype(dtype);
}

}  // namespace

int bits_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64:
    case Dtype::c64:
    case Dtype::i64:
    case Dtype::u64:
      return 64;
    case Dtype::f32:
    case Dtype::i32:
    case Dtype::u32:
      return 32;
    case Dtype::f16:
    case Dtype::bf16:
    case Dtype::i16:
    case Dtype::u16:
      return 16;
    case Dtype::i8:
    case Dtype::u8:
    case Dtype::boolean:
    case Dtype::f8_e4m3:
    case Dtype::f8_e5m2:
    case Dtype::f8_e8m0:
    case Dtype::f8_e4m3fnuz:
    case Dtype::f8_e5m2fnuz:
      return 8;
    case Dtype::f6_e3m2:
    case Dtype::f6_e2m3:
      return 6;
    case Dtype::f4:
      return 4;
  }
  refuse_dtype(dtype);
}

bool is_decoded(Dtype dtype) {
  return dtype == Dtype::f64 || dtype == Dtype::f32 || dtype == Dtype::f16 || dtype == Dtype::bf16;
}

bool is_encoded(Dtype dtype) {
  return is_decoded(dtype);
}

void decode(Dtype dtype, const std::byte* bytes, std::span<float> out) {
  decode_any(dtype, bytes, out);
}

void decode(Dtype dtype, const std::byte* bytes, std::span<double> out) {
  decode_any(dtype, bytes, out);
}

void encode(Dtype dtype, std::span<const float> values, std::byte* out) {
  encode_any(dtype, values, out);
}

void encode(Dtype dtype, std::span<const double> values, std::byte* out) {
  encode_any(dtype, values, out);
}

}  // namespace dflop
