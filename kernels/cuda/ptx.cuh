// This header wraps the PTX instructions that the kernels use: tensor cores (compute capability 8.0 and
// newer), asynchronous copies to shared memory, and barriers for a part of a block. All assembly is here, so
// that tests/cuda_on_host can emulate it on a CPU. For the layouts of fragments see PTX ISA, "Matrix
// fragments for mma.m16n8k16".
#pragma once

namespace dflop::cuda {

__device__ inline unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

/// Loads four matrices of 8 x 8 values. Lanes 8 i to 8 i + 7 pass the shared addresses of matrix i's rows, 16
/// bytes each. From each matrix, a lane gets the value at (lane / 4, 2 (lane % 4)) and the next one in the
/// row.
__device__ inline void load_matrices(unsigned (&to)[4], unsigned row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row));
}

/// Loads four matrices like load_matrices(), but transposed.
__device__ inline void load_matrices_transposed(unsigned (&to)[4], unsigned row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row));
}

/// Adds left[16, 16] * right[16, 8] to sum[16, 8], in f32. A lane has the values (lane / 4 + 8 i,
/// 2 (lane % 4) + j) at sum[2 i + j].
__device__ inline void multiply_add(float (&sum)[4], const unsigned (&left)[4], unsigned right0,
                                    unsigned right1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}

/// Waits like __syncthreads(), but only for the `threads` threads that call it with the same barrier number,
/// 1 to 15. They must be whole warps.
__device__ inline void wait_for_some(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/// Returns 2^x, accurate to two units in the last place. Results below the smallest normal number are 0.
__device__ inline float power_of_two(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

/// Begins an asynchronous copy of 16 bytes to a shared address; if not `inside`, it writes zeros instead.
__device__ inline void copy_16(unsigned to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0)
               : "memory");
}
/// Begins an asynchronous copy of 4 bytes to a shared address; if not `inside`, it writes zeros instead.
__device__ inline void copy_4(unsigned to, const void* from, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(inside ? 4 : 0)
               : "memory");
}

/// Waits until the thread's copies are done. Other threads see them after a barrier.
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

/// Begins to load the cache line of an address into the second-level cache.
__device__ inline void prefetch_line(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

}  // namespace dflop::cuda
