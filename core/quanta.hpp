// A device is shared in whole quanta: cores of the host, or groups of a GPU's multiprocessors. These
// functions round shares to quanta.
#pragma once

#include <algorithm>
#include <cmath>

namespace dflop {

/// Returns the number of quanta nearest to `share` of all quanta, halves rounded up.
inline int nearest_quanta(double quanta, double share) {
  constexpr double kRounding = 1e-9;  // covers the rounding error of 1 - share, so that both shares agree
  return static_cast<int>(std::floor(share * quanta + 0.5 + kRounding));
}

/// Returns how many of a device's quanta the encoder of a shared plan gets if it asks for `share` of them:
/// the nearest_quanta(), but at least one, and at most all but one, because the LLM gets the rest.
/// @pre quanta >= 2, 0 < share < 1
inline int encoder_quanta(int quanta, double share) {
  return std::clamp(nearest_quanta(quanta, share), 1, quanta - 1);
}

}  // namespace dflop
