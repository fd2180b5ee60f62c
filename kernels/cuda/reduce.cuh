// Sums and maxima are taken here over a warp or a block, in a fixed order.
#pragma once

namespace dflop::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

struct Add {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// Reduces over a warp, to the same result in every lane. All lanes take part.
template <typename T, typename Operation>
__device__ T reduce_warp(T value, Operation operation) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = operation(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}

/// Reduces over a block, to the same result in every thread. All threads take part, in whole warps; `neutral`
/// changes nothing.
template <typename T, typename Operation>
__device__ T reduce_block(T value, T neutral, Operation operation) {
  __shared__ T of_warps[kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  value = reduce_warp(value, operation);
  __syncthreads();  // who still reads the result before this one
  if (lane == 0) of_warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  return reduce_warp(lane < warps ? of_warps[lane] : neutral, operation);
}

}  // namespace dflop::cuda
