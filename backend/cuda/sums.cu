#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "backend/cuda/world.hpp"
#include "backend/host/thread_communicator.hpp"
#include "core/error.hpp"
#include "kernels/cuda/runtime.hpp"

namespace dflop {
namespace {

constexpr int kThreads = 256;
constexpr int kVectorBytes = 16;

/// Adding says in which type values are added: float and double in their own type, bfloat16 in float.
template <typename Value>
struct Adding {
  using Sum = Value;
  static __device__ Sum widen(Value value) { return value; }
  static __device__ Value narrow(Sum sum) { return sum; }
};
template <>
struct Adding<__nv_bfloat16> {
  using Sum = float;
  static __device__ Sum widen(__nv_bfloat16 value) { return __bfloat162float(value); }
  static __device__ __nv_bfloat16 narrow(Sum sum) { return __float2bfloat16_rn(sum); }
};

/// Parts hold the pointers of all ranks to their first value.
struct Parts {
  const void* inputs[kMaxCudaSummands];
  void* outputs[kMaxCudaSummands];
  int n_inputs;
  int n_outputs;
};

template <typename Value, int kWidth>
struct alignas(sizeof(Value) * kWidth) Vector {
  Value values[kWidth];
};

/// Adds the inputs in the order of ranks. A thread reads a value from all ranks before it writes the sum, so
/// inputs may also be outputs.
template <typename Value, int kWidth>
__global__ void __launch_bounds__(kThreads) add_up(const __grid_constant__ Parts parts, std::size_t vectors) {
  using A = Adding<Value>;
  using V = Vector<Value, kWidth>;
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < vectors; i += step) {
    typename A::Sum sums[kWidth];
    V vector = static_cast<const V*>(parts.inputs[0])[i];
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sums[j] = A::widen(vector.values[j]);
    for (int k = 1; k < parts.n_inputs; ++k) {
      vector = static_cast<const V*>(parts.inputs[k])[i];
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sums[j] += A::widen(vector.values[j]);
    }
#pragma unroll
    for (int j = 0; j < kWidth; ++j) vector.values[j] = A::narrow(sums[j]);
    for (int k = 0; k < parts.n_outputs; ++k) static_cast<V*>(parts.outputs[k])[i] = vector;
  }
}

template <typename Value, int kWidth>
void launch(const Parts& parts, std::size_t vectors, cudaStream_t stream, int multiprocessors) {
  if (vectors == 0) return;
  const std::size_t most = std::size_t{8} * static_cast<std::size_t>(std::max(1, multiprocessors));
  const auto blocks = static_cast<unsigned int>(std::min(most, (vectors + kThreads - 1) / kThreads));
  add_up<Value, kWidth><<<blocks, kThreads, 0, stream>>>(parts, vectors);
  check_cuda(cudaGetLastError(), "a sum over ranks");
}

template <typename Value>
Parts parts_of(const HostSum& sum, std::size_t begin) {
  Parts parts{};
  parts.n_inputs = static_cast<int>(sum.inputs.size());
  parts.n_outputs = static_cast<int>(sum.outputs.size());
  for (std::size_t k = 0; k < sum.inputs.size(); ++k) {
    parts.inputs[k] = static_cast<const Value*>(sum.inputs[k]) + begin;
  }
  for (std::size_t k = 0; k < sum.outputs.size(); ++k) {
    parts.outputs[k] = static_cast<Value*>(sum.outputs[k]) + begin;
  }
  return parts;
}

bool is_aligned(const Parts& parts) {
  std::uintptr_t all = 0;
  for (int k = 0; k < parts.n_inputs; ++k) all |= reinterpret_cast<std::uintptr_t>(parts.inputs[k]);
  for (int k = 0; k < parts.n_outputs; ++k) all |= reinterpret_cast<std::uintptr_t>(parts.outputs[k]);
  return all % kVectorBytes == 0;
}

/// Adds whole vectors if all pointers are aligned, then the remaining values one by one.
template <typename Value>
void add_values(const HostSum& sum, std::size_t begin, std::size_t end, cudaStream_t stream,
                int multiprocessors) {
  constexpr int kWidth = kVectorBytes / static_cast<int>(sizeof(Value));
  const Parts parts = parts_of<Value>(sum, begin);
  const std::size_t vectors = is_aligned(parts) ? (end - begin) / kWidth : 0;
  launch<Value, kWidth>(parts, vectors, stream, multiprocessors);
  const std::size_t rest = begin + vectors * kWidth;
  launch<Value, 1>(parts_of<Value>(sum, rest), end - rest, stream, multiprocessors);
}

}  // namespace

void add_up_on_gpu(const HostSum& sum, std::size_t begin, std::size_t end, void* stream,
                   int multiprocessors) {
  if (begin >= end) return;
  if (sum.inputs.empty() || sum.inputs.size() > kMaxCudaSummands || sum.outputs.size() > kMaxCudaSummands) {
    throw Error(ErrorKind::internal, "a sum over " + std::to_string(sum.inputs.size()) +
                                         " ranks on one GPU; expected 1 to " +
                                         std::to_string(kMaxCudaSummands));
  }
  auto* in = static_cast<cudaStream_t>(stream);
  switch (sum.element) {
    case DType::f32:
      return add_values<float>(sum, begin, end, in, multiprocessors);
    case DType::f64:
      return add_values<double>(sum, begin, end, in, multiprocessors);
    case DType::bf16:
      return add_values<__nv_bfloat16>(sum, begin, end, in, multiprocessors);
  }
}

}  // namespace dflop
