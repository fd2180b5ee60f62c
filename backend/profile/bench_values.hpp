// Benches of parts of a model share these: the values that they compute with, and how much of something else
// caches hold before them.
#pragma once

#include <cstdint>
#include <vector>

#include "core/support/random.hpp"

namespace dflop {

// This is what a core's own caches hold, several times, and much of its share of the last level: between two
// passes of a layer a step goes through tens of MB. On a machine with 1 MiB and a share of 16 MiB one rank's
// steps were predicted 4.7 % too short with 4 MiB, 1.8 % with 8 MiB and 5.9 % too long with 16 MiB (means of
// four runs of `dflop fidelity --steps 24 --budget-s 8` with the grid's plan "one rank").
inline constexpr std::int64_t kColdValues = std::int64_t{1} << 21;

/// Returns numbers in [-0.5, 0.5), as many as are enough that no product sees the same again and again.
inline std::vector<float> random_values(std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values(4099);
  for (float& value : values) value = static_cast<float>(random.uniform() - 0.5);
  return values;
}

}  // namespace dflop
