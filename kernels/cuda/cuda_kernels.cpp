#include "kernels/cuda/runtime.hpp"

#include <algorithm>

#ifdef DFLOP_HAVE_CUDNN
#include "kernels/cuda/cudnn_attention.hpp"
#endif
#include "kernels/cuda/themes.hpp"

namespace dflop {
namespace {

std::unique_ptr<cuda::AttentionLibrary> library_of([[maybe_unused]] const cuda::CudaTarget& target,
                                                   [[maybe_unused]] const AttentionOptions& options) {
#ifdef DFLOP_HAVE_CUDNN
  return cuda::make_cudnn_attention(target, options);
#else
  return nullptr;
#endif
}

class CudaKernels final : public Kernels {
 public:
  CudaKernels(const cuda::CudaTarget& target, const CudaKernelOptions& options)
      : Kernels(target.dtype), target_(target) {
    linear_ = cuda::set_linear(*this, target_, options.multiprocessors);
    cuda::set_norms(*this, target_);
    cuda::set_activations(*this, target_);
    attention_ = cuda::set_attention(*this, target_, library_of(target_, options.attention));
    cuda::set_rows(*this, target_);
    cuda::set_loss(*this, target_);
    cuda::set_elementwise(*this, target_);
    cuda::set_unpack(*this, target_);
  }

 private:
  cuda::CudaTarget target_;
  std::shared_ptr<void> linear_;     ///< state of linear layers
  std::shared_ptr<void> attention_;  ///< state of attention
};

/// Returns the current device. @throws Error (no_device) if it has no tensor cores for bf16.
int require_device() {
  int device = 0;
  int major = 0;
  const cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) {
    throw Error(ErrorKind::no_device,
                std::string("no GPU for the kernels: CUDA says ") + cudaGetErrorString(status));
  }
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "compute capability");
  if (major >= 8) return device;
  throw Error(ErrorKind::no_device, "GPU " + std::to_string(device) + " has compute capability " +
                                        std::to_string(major) + ".x, expected 8.0 or newer");
}

/// Returns the device's own pool, and configures it to keep its memory. Without this, the pool would return
/// the memory to the system at every synchronization.
cudaMemPool_t pool_of_device(int device) {
  cudaMemPool_t pool = nullptr;
  check_cuda(cudaDeviceGetDefaultMemPool(&pool, device), "memory pool of the device");
  std::uint64_t threshold = std::uint64_t{1} << 30;
  check_cuda(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold),
             "memory pool of the device");
  return pool;
}

/// Returns the max shared memory of a block: 227 KiB on compute capability 9.0, 163 on 8.0, 99 on 8.6.
std::size_t shared_bytes_of(int device, int at_most) {
  int bytes = 0;
  check_cuda(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "shared memory of a block");
  return static_cast<std::size_t>(at_most > 0 ? std::min(bytes, at_most) : bytes);
}

}  // namespace

std::unique_ptr<Kernels> make_cuda_kernels(DType dtype, const CudaKernelOptions& options) {
  if (dtype != DType::f32 && dtype != DType::bf16) {
    throw Error(ErrorKind::usage, "a GPU computes in f32 or bf16, not in " + std::string(to_string(dtype)));
  }
  const int device = require_device();
  auto* pool = static_cast<cudaMemPool_t>(options.pool);
  if (pool == nullptr) pool = pool_of_device(device);
  const cuda::CudaTarget target{static_cast<cudaStream_t>(options.stream), dtype, pool,
                                shared_bytes_of(device, options.shared_bytes), options.allocate};
  return std::make_unique<CudaKernels>(target, options);
}

std::string attention_library() {
#ifdef DFLOP_HAVE_CUDNN
  return cuda::cudnn_version();
#else
  return {};
#endif
}

}  // namespace dflop
