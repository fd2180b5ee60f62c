// reduce_warp() and reduce_block() compute sums and maxima over a warp or a block, in a fixed order.
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

/// Reduces over a warp; every lane gets the same result. All lanes must take part.
template <typename T, typename Operation>
__device__ T reduce_warp(T value, Operation operation) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = operation(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}

/// Reduces over a block; every thread gets the same result. All threads must take part, in whole warps.
/// `neutral` is the operation's neutral element.
template <typename T, typename Operation>
__device__ T reduce_block(T value, T neutral, Operation operation) {
  __shared__ T of_warps[kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  value = reduce_warp(value, operation);
  __syncthreads();  // other warps may still read the previous result
  if (lane == 0) of_warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  return reduce_warp(lane < warps ? of_warps[lane] : neutral, operation);
}

}  // namespace dflop::cuda
