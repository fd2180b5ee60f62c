// The inner loop of local search finds which offer of one bin to exchange for which of another.
#pragma once

#include <array>
#include <cstdint>

#include "solver/lanes.hpp"

namespace dflop {

/// Offers are read so many at a time; their arrays are padded to a multiple of it.
inline constexpr int kLanes = Lanes::kCount;
/// A padding offer has these loads, so that an exchange for it is never the best.
inline constexpr float kFar = 1e30F;
/// One exchange can obey so many caps.
inline constexpr int kMostCaps = 24;

/// Offers are parts of a bin that may leave it: items, pairs of items, nothing. They have loads, and the
/// weights of each cap.
struct Offers {
  const float* encoder = nullptr;
  const float* llm = nullptr;
  std::array<const float*, kMostCaps> weight = {};
  int count = 0;  ///< without padding
};

/// An ExchangeQuery has two bins and what each may give. An exchange is allowed if for each cap (weight of
/// y's offer - weight of x's offer) lies between least and most.
struct ExchangeQuery {
  Offers x;
  Offers y;
  float encoder_x = 0;  ///< loads before the exchange
  float llm_x = 0;
  float encoder_y = 0;
  float llm_y = 0;
  int caps = 0;
  std::array<float, kMostCaps> least = {};
  std::array<float, kMostCaps> most = {};
};

/// An Exchange has the largest of the four loads after an exchange, and which offers change places.
struct Exchange {
  float load = 0;
  std::int32_t x = -1;
  std::int32_t y = -1;
};

/// Finds the exchange with the smallest load below `best.load`, the first of equal ones; `best` is unchanged
/// if there is none. It only adds and compares floats, so the result is the same on every processor.
/// @return true if `best` is new.
bool best_exchange(const ExchangeQuery& query, Exchange& best);

}  // namespace dflop
