// make_cudnn_attention() provides attention computed by cuDNN, on devices of compute capability 9.0 and
// newer. It is built if the headers of cuDNN and of its frontend are found (cmake/DflopCuda.cmake). The
// library is loaded when kernels are made and initialized by its first call.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/attention_options.hpp"
#include "kernels/cuda/attention_library.hpp"
#include "kernels/kernels.hpp"

namespace dflop::cuda {

struct CudaTarget;

/// A CudnnShape holds the limits for which a cuDNN plan is built: the max number of sequences, of tokens per
/// sequence and of tokens in total.
struct CudnnShape {
  AttentionShape attention;
  bool backward = false;
  std::int64_t sequences = 0;
  std::int64_t longest = 0;
  std::int64_t tokens = 0;
};

/// Returns the smallest number >= `count` that is a power of two or 1.5 times one. With such buckets,
/// different microbatches share cuDNN plans. Building a plan takes up to some tenths of a second.
/// @pre count >= 1
constexpr std::int64_t cudnn_bucket(std::int64_t count) {
  std::int64_t bucket = 1;
  while (bucket < count) {
    const bool is_power = (bucket & (bucket - 1)) == 0;
    bucket = bucket == 1 ? 2 : bucket + (is_power ? bucket / 2 : bucket / 3);
  }
  return bucket;
}

/// Returns cuDNN's reason to reject a shape on devices of a compute capability (90 for 9.0); empty if it
/// accepts the shape. It only checks the graph, which needs the library but no device.
/// @throws Error (no_device) if the library is missing.
std::string cudnn_refusal(const CudnnShape& shape, int compute_capability,
                          AttentionSums sums = AttentionSums::fixed);

/// Makes cuDNN's attention in bf16, or returns null if the library cannot be loaded or the device is too old.
/// It computes as many sequences at once as the options' workspace allows. It rejects a call if cuDNN has no
/// engine for its shape, or if a single sequence needs more workspace. With AttentionSums::fixed, it uses
/// cuDNN's deterministic backward. The target must outlive it.
std::unique_ptr<AttentionLibrary> make_cudnn_attention(const CudaTarget& target,
                                                       const AttentionOptions& options);

/// Returns the name and version of the cuDNN library that is found, such as "cuDNN 9.19.0"; empty if none is
/// found.
std::string cudnn_version();

}  // namespace dflop::cuda
