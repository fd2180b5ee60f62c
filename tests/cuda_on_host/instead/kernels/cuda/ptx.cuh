// This header replaces kernels/cuda/ptx.cuh on a CPU and has the same functions.
#pragma once

#include <cfloat>
#include <cmath>

#include "tests/cuda_on_host/emulation/block.hpp"
#include "tests/cuda_on_host/emulation/instructions.hpp"

namespace dflop::cuda {

inline unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(static_cast<const char*>(pointer) - emulation::block().shared());
}

inline void load_matrices(unsigned (&to)[4], unsigned row) {
  emulation::load_matrices(to, row, false);
}
inline void load_matrices_transposed(unsigned (&to)[4], unsigned row) {
  emulation::load_matrices(to, row, true);
}
inline void multiply_add(float (&sum)[4], const unsigned (&left)[4], unsigned right0, unsigned right1) {
  emulation::multiply_add(sum, left, right0, right1);
}

inline void wait_for_some(int barrier, int threads) {
  emulation::block().wait_at(barrier, threads);
}

inline float power_of_two(float x) {
  const float power = std::exp2(x);
  return power < FLT_MIN ? 0.0f : power;
}

inline void copy_16(unsigned to, const void* from, bool inside) {
  emulation::block().begin_copy(to, from, 16, inside);
}
inline void copy_4(unsigned to, const void* from, bool inside) {
  emulation::block().begin_copy(to, from, 4, inside);
}
inline void wait_copies() {
  emulation::block().wait_copies();
}

inline void prefetch_line(const void*) {}

}  // namespace dflop::cuda
