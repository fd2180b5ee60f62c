// The conversions of CUDA's bfloat16 that the kernels use.
#pragma once

#include <cuda_runtime_api.h>

#include "core/dtype.hpp"

struct __nv_bfloat16 {
  std::uint16_t bits;
};
struct __nv_bfloat162 {
  __nv_bfloat16 x;
  __nv_bfloat16 y;
};

inline float __bfloat162float(__nv_bfloat16 value) {
  return dflop::to_float(dflop::BFloat16{value.bits});
}
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  return {dflop::to_bfloat16(value).bits};
}
inline __nv_bfloat162 __floats2bfloat162_rn(float low, float high) {
  return {__float2bfloat16_rn(low), __float2bfloat16_rn(high)};
}
