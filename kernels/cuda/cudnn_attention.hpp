// cuDNN's attention is there on devices of compute capability 9.0 and newer. It is built where the headers of
// cuDNN and of its frontend are found (cmake/DflopCuda.cmake); the library is loaded when kernels are made,
// and started by the first call that it takes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/attention_options.hpp"
#include "kernels/cuda/attention_library.hpp"
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

/// Returns the next number from `count` on that is a power of two or one and a half times one, so that ever
/// new microbatches share plans, of which each takes up to some tenths of a second to build. @pre count >= 1
constexpr std::int64_t cudnn_bucket(std::int64_t count) {
  std::int64_t bucket = 1;
  while (bucket < count) {
    const bool is_power = (bucket & (bucket - 1)) == 0;
    bucket = bucket == 1 ? 2 : bucket + (is_power ? bucket / 2 : bucket / 3);
  }
  return bucket;
}

/// Returns what cuDNN has against a shape on devices of a compute capability (90: 9.0), as the check of its
/// graph says, which needs the library and no device; empty: nothing.
/// @throws Error (no_device) where the library is missing.
std::string cudnn_refusal(const CudnnShape& shape, int compute_capability,
                          AttentionSums sums = AttentionSums::fixed);

/// Makes cuDNN's attention of bf16, where the library can be loaded and the device is new enough; else null.
/// It computes as many sequences at once as the workspace that the options allow, and does not take shapes
/// for which the library has no engine, or of which one sequence needs more. With fixed sums its backward is
/// the one that cuDNN calls deterministic. The target outlives it.
std::unique_ptr<AttentionLibrary> make_cudnn_attention(const CudaTarget& target,
                                                       const AttentionOptions& options);

/// Returns "cuDNN 9.19.0", the library that is found; empty for none.
std::string cudnn_version();

}  // namespace dflop::cuda
