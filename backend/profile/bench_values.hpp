// The benches share these definitions: the random values that they compute with, and the amount of other data
// that they write to evict caches first.
#pragma once

#include <cstdint>
#include <vector>

#include "core/support/random.hpp"

namespace dflop {

// A bench writes this many values before a pass to evict the caches. They are several times a core's own
// caches and much of its share of the last level, because a step touches tens of MB between two passes of a
// layer. On a machine with 1 MiB and a share of 16 MiB one rank's steps were predicted 4.7 % too short with 4
// MiB, 1.8 % with 8 MiB and 5.9 % too long with 16 MiB (means of four runs of `dflop check runs --steps 24
// --budget-s 8` with the grid's plan "one rank").
inline constexpr std::int64_t kColdValues = std::int64_t{1} << 21;

/// Returns random numbers in [-0.5, 0.5), enough that a product does not read the same numbers over and over.
inline std::vector<float> random_values(std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values(4099);
  for (float& value : values) value = static_cast<float>(random.uniform() - 0.5);
  return values;
}

}  // namespace dflop
