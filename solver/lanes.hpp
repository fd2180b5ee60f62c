// Lanes are vectors of sixteen floats; functions on them are compiled for several processors. The local
// search for the largest load (solver/bins/exchange_kernel.hpp) computes in them; the search for the makespan
// (solver/makespan/kernel.hpp) uses the same Lanes and clones.
#pragma once

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
  static constexpr int kCount = 16;
  float value __attribute__((vector_size(64))) = {};
};

/// LaneGroups have a group, or -1, for each lane.
struct alignas(64) LaneGroups {
  std::int32_t value __attribute__((vector_size(64))) = {};
};

}  // namespace dflop
