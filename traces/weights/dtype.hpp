// A Dtype says how the numbers of a stored tensor are encoded in bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/names.hpp"

namespace dflop {

/// A Dtype is a number type of the safetensors format, version 0.8. Numbers are little endian.
enum class Dtype {
  f64,
  f32,
  f16,   ///< 5 bits of exponent, 10 of fraction
  bf16,  ///< 8 bits of exponent, 7 of fraction
  c64,   ///< complex, two f32
  i64,
  u64,
  i32,
  u32,
  i16,
  u16,
  i8,
  u8,
  boolean,
  f8_e4m3,
  f8_e5m2,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  f6_e3m2,
  f6_e2m3,
  f4,
};

template <>
inline constexpr NameTable<Dtype, 22> kNames<Dtype> = {{{Dtype::f64, "F64"},
                                                        {Dtype::f32, "F32"},
                                                        {Dtype::f16, "F16"},
                                                        {Dtype::bf16, "BF16"},
                                                        {Dtype::c64, "C64"},
                                                        {Dtype::i64, "I64"},
                                                        {Dtype::u64, "U64"},
                                                        {Dtype::i32, "I32"},
                                                        {Dtype::u32, "U32"},
                                                        {Dtype::i16, "I16"},
                                                        {Dtype::u16, "U16"},
                                                        {Dtype::i8, "I8"},
                                                        {Dtype::u8, "U8"},
                                                        {Dtype::boolean, "BOOL"},
                                                        {Dtype::f8_e4m3, "F8_E4M3"},
                                                        {Dtype::f8_e5m2, "F8_E5M2"},
                                                        {Dtype::f8_e8m0, "F8_E8M0"},
                                                        {Dtype::f8_e4m3fnuz, "F8_E4M3FNUZ"},
                                                        {Dtype::f8_e5m2fnuz, "F8_E5M2FNUZ"},
                                                        {Dtype::f6_e3m2, "F6_E3M2"},
                                                        {Dtype::f6_e2m3, "F6_E2M3"},
                                                        {Dtype::f4, "F4"}}};

/// Returns the number of bits of one number; numbers with less than 8 bits are packed without gaps.
int bits_of(Dtype dtype);

/// Tells whether decode() supports the dtype: F64, F32, F16, BF16.
bool is_decoded(Dtype dtype);
/// Tells whether encode() supports the dtype: F64, F32, F16, BF16.
bool is_encoded(Dtype dtype);

/// Converts the numbers at `bytes`, which need no alignment, to the type of `out`. All conversions are exact
/// except F64 to float, which rounds to nearest even, and to infinity beyond the largest float.
/// @pre is_decoded(dtype), and `bytes` has out.size() numbers
void decode(Dtype dtype, const std::byte* bytes, std::span<float> out);
void decode(Dtype dtype, const std::byte* bytes, std::span<double> out);

/// Converts numbers to the bytes at `out`, which need no alignment. Each number is rounded once: to nearest
/// even, or to infinity beyond the largest number of the dtype. NaN stays NaN.
/// @pre is_encoded(dtype), and `out` is large enough for all numbers
void encode(Dtype dtype, std::span<const float> values, std::byte* out);
void encode(Dtype dtype, std::span<const double> values, std::byte* out);

/// Returns the same memory, viewed as text.
inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace dflop
