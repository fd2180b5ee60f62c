// The inner loop of local search finds which offer of one bin to exchange for which of another. It computes
// in Lanes, vectors of sixteen floats, by functions that are compiled for several processors; so does the
// search for the makespan.
#pragma once

#include <array>
#include <cstdint>

// A function with DFLOP_VECTOR_CLONES is compiled for several processors; the one that fits is chosen when
// the program is loaded. Sanitizers do not get along with code that runs while the program is loaded.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define DFLOP_VECTOR_CLONES
#endif
#endif
#if !defined(__x86_64__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DFLOP_VECTOR_CLONES
#endif
#ifndef DFLOP_VECTOR_CLONES
#define DFLOP_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif

namespace dflop {

/// Lanes have one value for each of the candidates that are evaluated together: sixteen floats, in as many
/// registers as the processor needs. The vectors are those of GCC and Clang.
struct alignas(64) Lanes {
  static constexpr int count = 16;
  float value __attribute__((vector_size(64))) = {};
};

/// LaneGroups have a group, or -1, for each lane.
struct alignas(64) LaneGroups {
  std::int32_t value __attribute__((vector_size(64))) = {};
};

/// Offers are read so many at a time; their arrays are padded to a multiple of it.
inline constexpr int kLanes = Lanes::count;
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
