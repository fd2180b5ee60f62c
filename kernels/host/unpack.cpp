// This file converts numbers in the types that files store to values and sums.
#include <bit>
#include <cstdint>

#include "core/support/half.hpp"
#include "kernels/host/matrix.hpp"

namespace dflop::DFLOP_HOST_TARGET {
namespace {

struct F16 {
  std::uint16_t bits;
};

// These return a stored number in the narrowest type that can represent all such numbers.

double widened(double number) {
  return number;
}
float widened(float number) {
  return number;
}
float widened(F16 number) {
  return from_f16(number.bits);
}
float widened(BFloat16 number) {
  return to_float(number);
}

// is_not_finite() returns 1 for an infinity or NaN, which have all exponent bits set, else 0. The result is a
// number so that compilers can vectorize loops.

std::uint64_t is_not_finite(double number) {
  constexpr std::uint64_t kExponent = 0x7FF0'0000'0000'0000;
  return (std::bit_cast<std::uint64_t>(number) & kExponent) == kExponent ? 1 : 0;
}
std::uint32_t is_not_finite(float number) {
  constexpr std::uint32_t kExponent = 0x7F80'0000;
  return (std::bit_cast<std::uint32_t>(number) & kExponent) == kExponent ? 1 : 0;
}

template <typename T>
void unpack_values(Matrix y, Sums not_finite, const StoredNumbers& x) {
  with_numbers<double, float, F16, BFloat16>(x, [&](const auto* numbers) {
    T* const values = static_cast<T*>(y.data);
    decltype(is_not_finite(widened(*numbers))) found = 0;
    for (Index i = 0; i < y.size(); ++i) {
      const auto number = widened(numbers[i]);
      found |= is_not_finite(number);
      values[i] = static_cast<T>(number);
    }
    if (found != 0) *static_cast<T*>(not_finite.data) = T(1);
  });
}

template <typename T>
void unpack_sums(Sums y, const StoredNumbers& x) {
  with_numbers<double, float, F16, BFloat16>(x, [&](const auto* numbers) {
    T* const sums = static_cast<T*>(y.data);
    for (Index i = 0; i < y.size(); ++i) sums[i] = static_cast<T>(widened(numbers[i]));
  });
}

}  // namespace

void set_unpack(Kernels& kernels) {
  with_type(kernels, [&](auto type) {
    using T = decltype(type);
    kernels.unpack_values.set<unpack_values<T>>();
    kernels.unpack_sums.set<unpack_sums<T>>();
  });
}

}  // namespace dflop::DFLOP_HOST_TARGET
