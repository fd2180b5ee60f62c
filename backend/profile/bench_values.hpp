// Definitions that the benches share: random values to compute with, and the amount of other data that they
// write to evict caches before a measurement.
#pragma once

#include <cstdint>
#include <vector>

#include "core/support/random.hpp"

namespace dflop {

// A bench writes this many values before a pass to evict the caches, because a training step touches tens of
// MB between two passes of a layer. The values are several times as large as a core's own caches and fill
// much of its share of the last-level cache. The number was tuned on a machine with 1 MiB of own cache and a
// share of 16 MiB: the predicted steps of one rank were 4.7 % too short with 4 MiB of values, 1.8 % too
// short with 8 MiB and 5.9 % too long with 16 MiB (means of four runs of `dflop check runs --steps 24
// --budget-s 8` with the grid's plan "one rank").
inline constexpr std::int64_t kColdValues = std::int64_t{1} << 21;

/// Returns enough random numbers in [-0.5, 0.5) that a matrix product does not use the same few numbers
/// again and again.
inline std::vector<float> random_values(std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values(4099);
  for (float& value : values) value = static_cast<float>(random.uniform() - 0.5);
  return values;
}

}  // namespace dflop
