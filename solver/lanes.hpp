// Lanes are vectors of sixteen floats. Functions that compute with them are compiled for several processors.
// The local search for the largest load (solver/bins/exchange_kernel.hpp) and the search for the makespan
// (solver/makespan/kernel.hpp) use them.
#pragma once

#include <cstdint>

// DFLOP_VECTOR_CLONES compiles a function for several processors; the best version is chosen when the program
// is loaded. It is off with sanitizers, which do not support code that runs at load time.
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

/// Lanes have one value for each of the sixteen candidates that are evaluated together, in as many registers
/// as the processor needs. They use the vector extension of GCC and Clang.
struct alignas(64) Lanes {
  static constexpr int kCount = 16;
  float value __attribute__((vector_size(64))) = {};
};

/// LaneGroups have, for each lane, the number of a group of replicas, or -1.
struct alignas(64) LaneGroups {
  std::int32_t value __attribute__((vector_size(64))) = {};
};

}  // namespace dflop
