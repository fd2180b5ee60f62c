// This header has the inner loop of local search: it finds the best exchange of items between two bins.
#pragma once

#include <array>
#include <cstdint>

#include "solver/lanes.hpp"

namespace dflop {

/// This many offers are evaluated together. Arrays of offers are padded to a multiple of this number.
inline constexpr int kLanes = Lanes::kCount;
/// Both loads of a padding offer have this value. It is so large that no exchange for such an offer is the
/// best.
inline constexpr float kFar = 1e30F;
/// An exchange can obey at most this many caps.
inline constexpr int kMaxCaps = 24;

/// Offers are parts of a bin that may leave it: single items, pairs of items, or nothing. They have loads,
/// and weights for each cap.
struct Offers {
  const float* encoder = nullptr;
  const float* llm = nullptr;
  std::array<const float*, kMaxCaps> weight = {};
  int count = 0;  ///< without padding
};

/// An ExchangeQuery has two bins and the offers of each. An exchange is allowed if for each cap (weight of
/// y's offer - weight of x's offer) lies between `least` and `most`.
struct ExchangeQuery {
  Offers x;
  Offers y;
  float encoder_x = 0;  ///< loads before the exchange
  float llm_x = 0;
  float encoder_y = 0;
  float llm_y = 0;
  int caps = 0;
  std::array<float, kMaxCaps> least = {};
  std::array<float, kMaxCaps> most = {};
};

/// An Exchange has the largest load of both bins after the exchange, and the indices of the exchanged offers.
struct Exchange {
  float load = 0;
  std::int32_t x = -1;
  std::int32_t y = -1;
};

/// Sets `best` to the exchange with the smallest load below `best.load`, the first one if several tie. If
/// there is none, `best` stays unchanged. It only adds and compares floats, so the result is the same on
/// every processor.
/// @return true if `best` has changed.
bool best_exchange(const ExchangeQuery& query, Exchange& best);

}  // namespace dflop
