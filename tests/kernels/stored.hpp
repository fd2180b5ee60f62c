// Random numbers in the types of files.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "core/support/random.hpp"
#include "kernels/stored_numbers.hpp"

namespace dflop::testing {

inline constexpr NumberType kNumberTypes[] = {NumberType::f64, NumberType::f32, NumberType::f16,
                                              NumberType::bf16};

enum class Special { largest, infinity, nan };

/// Numbers of a type, with their memory.
struct Stored {
  NumberType type = NumberType::f32;
  std::vector<std::byte> bytes;

  std::size_t count() const { return bytes.size() / bytes_of(type); }
  StoredNumbers numbers() const { return {type, bytes.data(), static_cast<std::int64_t>(count())}; }

  template <typename Bits>
  void set_bits(std::size_t place, Bits bits) {
    std::memcpy(bytes.data() + place * sizeof bits, &bits, sizeof bits);
  }
  void set(std::size_t place, Special special) {
    const auto pick = [&](auto largest, auto infinity, auto nan) {
      set_bits(place, special == Special::largest ? largest : special == Special::infinity ? infinity : nan);
    };
    using F64 = std::numeric_limits<double>;
    using F32 = std::numeric_limits<float>;
    using U16 = std::uint16_t;
    switch (type) {
      case NumberType::f64:
        return pick(F64::max(), F64::infinity(), F64::quiet_NaN());
      case NumberType::f32:
        return pick(F32::max(), F32::infinity(), F32::quiet_NaN());
      case NumberType::f16:
        return pick(U16{0x7BFF}, U16{0x7C00}, U16{0x7C01});
      case NumberType::bf16:
        return pick(U16{0x7F7F}, U16{0x7F80}, U16{0x7F81});
    }
  }
};

/// 16-bit numbers have any finite bits; wider numbers are in [-1, 1), the range of model weights.
inline Stored random_stored(Random& random, NumberType type, std::size_t count) {
  Stored stored{type, std::vector<std::byte>(count * bytes_of(type))};
  const std::uint16_t exponent = type == NumberType::f16 ? 0x7C00 : 0x7F80;
  for (std::size_t i = 0; i < count; ++i) {
    const double number = 2.0 * random.uniform() - 1.0;
    if (type == NumberType::f64) {
      stored.set_bits(i, number);
    } else if (type == NumberType::f32) {
      stored.set_bits(i, static_cast<float>(number));
    } else {
      auto bits = static_cast<std::uint16_t>(random.below(1 << 16));
      if ((bits & exponent) == exponent) bits = static_cast<std::uint16_t>(bits ^ exponent);
      stored.set_bits(i, bits);
    }
  }
  return stored;
}

}  // namespace dflop::testing
