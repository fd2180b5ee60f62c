// This header has a type for each unit, so that the compiler rejects adding seconds to bytes.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>

namespace dflop {

/// Seconds are times that are computed or set: costs, limits, timeouts.
using Seconds = std::chrono::duration<double>;

/// Nanoseconds are times on a clock, of the simulator or of a live run. They are integers, so comparisons
/// need no epsilon.
using Nanoseconds = std::chrono::duration<std::int64_t, std::nano>;

/// Rounds seconds to nanoseconds, half away from zero. This is the only place that does it.
/// @throws Error (internal) for a negative, non-finite or too long (over 292 years) duration.
Nanoseconds to_nanoseconds(Seconds duration);

struct Bytes {
  std::int64_t count = 0;

  constexpr auto operator<=>(const Bytes&) const = default;
  constexpr Bytes& operator+=(Bytes other) { return count += other.count, *this; }
  constexpr Bytes& operator-=(Bytes other) { return count -= other.count, *this; }
};

/// Returns bytes in GiB, for display.
constexpr double in_gib(Bytes bytes) {
  return static_cast<double>(bytes.count) * 0x1p-30;
}

constexpr Bytes operator+(Bytes a, Bytes b) {
  return {a.count + b.count};
}
constexpr Bytes operator-(Bytes a, Bytes b) {
  return {a.count - b.count};
}

/// One number has this many bytes in each storage format. Programs and the analytic model count activations,
/// weights, and messages of both in bf16. They count optimizer states, and gradients summed over
/// microbatches, in fp32, or in bf16 if the plan says so (OptimizerStates).
inline constexpr std::int64_t kBf16Bytes = 2;
inline constexpr std::int64_t kFp32Bytes = 4;
inline constexpr std::int64_t kFp64Bytes = 8;

/// Flop counts floating-point operations as a double: an iteration has 10^15 and more, and exact counts are
/// not needed.
struct Flop {
  double count = 0;

  constexpr auto operator<=>(const Flop&) const = default;
  constexpr Flop& operator+=(Flop other) { return count += other.count, *this; }
};

constexpr Flop operator+(Flop a, Flop b) {
  return {a.count + b.count};
}
constexpr Flop operator*(Flop a, double times) {
  return {a.count * times};
}

/// Rounds `value` up to a multiple of `multiple`, for example when tensor parallelism pads heads. Both
/// arguments must be positive.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace dflop
