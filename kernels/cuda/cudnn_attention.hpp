// cuDNN's attention is a variant on devices of compute capability 9.0 and newer. It is built where the
// headers of cuDNN and of its frontend are found (cmake/DflopCuda.cmake); the library is loaded when kernels
// are made.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/kernels.hpp"

namespace dflop::cuda {

struct CudaTarget;

/// A CudnnShape is what a plan of cuDNN is for: at most so many sequences, of at most so many tokens each and
/// in all.
struct CudnnShape {
  AttentionShape attention;
  bool backward = false;
  std::int64_t sequences = 0;
  std::int64_t longest = 0;
  std::int64_t tokens = 0;
};

/// Returns the next number from `count` on that is a power of two or one and a half times one, and at least
/// 4, so that ever new microbatches share plans: building one takes milliseconds.
constexpr std::int64_t cudnn_bucket(std::int64_t count) {
  std::int64_t bucket = 4;
  while (bucket < count) bucket += (bucket & (bucket - 1)) == 0 ? bucket / 2 : bucket / 3;
  return bucket;
}

/// Returns what cuDNN has against a shape on devices of a compute capability (90: 9.0), as the check of its
/// graph says, which needs the library and no device; empty: nothing.
/// @throws Error (no_device) where the library is missing.
std::string cudnn_refusal(const CudnnShape& shape, int compute_capability);

/// Adds the variant "cudnn" of attention and its backward, of bf16, where the library can be loaded and the
/// device is new enough. Shapes that it does not take go to the default. The result is what it keeps, and
/// must outlive the kernels, as the target; it may be none. The backward is the one that cuDNN calls
/// deterministic.
std::shared_ptr<void> add_cudnn_attention(Kernels& kernels, const CudaTarget& target);

}  // namespace dflop::cuda
