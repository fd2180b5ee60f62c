#include "kernels/cuda/cuda_kernels.hpp"

#include <algorithm>

#include "kernels/cuda/linear.hpp"
#include "kernels/cuda/operations.hpp"
#include "kernels/operation_checks.hpp"

namespace dflop {
namespace {

/// Checks arguments and hands them on. The operations lie in files by theme.
class CudaKernels final : public Kernels {
 public:
  CudaKernels(const cuda::CudaTarget& target, int multiprocessors)
      : target_(target), linear_(target, multiprocessors) {}
  DType dtype() const override { return target_.dtype; }

  void linear(Matrix y, ConstMatrix x, ConstMatrix weight, ConstMatrix bias) override {
    check_linear(y, x, weight, bias);
    linear_.forward(y, x, weight, bias);
  }
  void linear_backward_input(Matrix dx, ConstMatrix dy, ConstMatrix weight) override {
    check_linear_backward_input(dx, dy, weight);
    linear_.backward_input(dx, dy, weight);
  }
  void linear_backward_weight(Sums dweight, Sums dbias, ConstMatrix dy, ConstMatrix x) override {
    check_linear_backward_weight(dweight, dbias, dy, x);
    linear_.backward_weight(dweight, dbias, dy, x);
  }

  void layer_norm(Matrix y, Sums statistics, ConstMatrix x, ConstMatrix gamma, ConstMatrix beta,
                  double epsilon) override {
    check_layer_norm(y, statistics, x, gamma, beta);
    cuda::layer_norm(target_, y, statistics, x, gamma, beta, epsilon);
  }
  void layer_norm_backward(Matrix dx, Sums dgamma, Sums dbeta, ConstMatrix dy, ConstMatrix x,
                           ConstMatrix gamma, ConstSums statistics) override {
    check_layer_norm_backward(dx, dgamma, dbeta, dy, x, gamma, statistics);
    cuda::layer_norm_backward(target_, dx, dgamma, dbeta, dy, x, gamma, statistics);
  }
  void rms_norm(Matrix y, Sums statistics, ConstMatrix x, ConstMatrix gamma, double epsilon) override {
    check_rms_norm(y, statistics, x, gamma);
    cuda::rms_norm(target_, y, statistics, x, gamma, epsilon);
  }
  void rms_norm_backward(Matrix dx, Sums dgamma, ConstMatrix dy, ConstMatrix x, ConstMatrix gamma,
                         ConstSums statistics) override {
    check_rms_norm_backward(dx, dgamma, dy, x, gamma, statistics);
    cuda::rms_norm_backward(target_, dx, dgamma, dy, x, gamma, statistics);
  }

  void gelu(Matrix y, ConstMatrix x) override {
    check_gelu(y, x);
    cuda::gelu(target_, y, x);
  }
  void gelu_backward(Matrix dx, ConstMatrix dy, ConstMatrix x) override {
    check_gelu_backward(dx, dy, x);
    cuda::gelu_backward(target_, dx, dy, x);
  }
  void swiglu(Matrix y, ConstMatrix x) override {
    check_swiglu(y, x);
    cuda::swiglu(target_, y, x);
  }
  void swiglu_backward(Matrix dx, ConstMatrix dy, ConstMatrix x) override {
    check_swiglu_backward(dx, dy, x);
    cuda::swiglu_backward(target_, dx, dy, x);
  }

  void rope(Matrix qkv, const AttentionShape& shape, Indices positions, double base, bool inverse) override {
    check_rope(qkv, shape, positions);
    cuda::rope(target_, qkv, shape, positions, base, inverse);
  }
  void attention(Matrix out, Sums statistics, ConstMatrix qkv, const AttentionShape& shape,
                 Indices offsets) override {
    check_attention(out, statistics, qkv, shape, offsets);
    cuda::attention(target_, out, statistics, qkv, shape, offsets);
  }
  void attention_backward(Matrix dqkv, ConstMatrix dout, ConstMatrix out, ConstSums statistics,
                          ConstMatrix qkv, const AttentionShape& shape, Indices offsets) override {
    check_attention_backward(dqkv, dout, out, statistics, qkv, shape, offsets);
    cuda::attention_backward(target_, dqkv, dout, out, statistics, qkv, shape, offsets);
  }

  void embedding(Matrix y, ConstMatrix table, Indices ids, std::int64_t first) override {
    check_embedding(y, table, ids);
    cuda::embedding(target_, y, table, ids, first);
  }
  void embedding_backward(Sums dtable, ConstMatrix dy, Indices ids, std::int64_t first) override {
    check_embedding_backward(dtable, dy, ids);
    cuda::embedding_backward(target_, dtable, dy, ids, first);
  }

  void cross_entropy_parts(Sums parts, ConstMatrix logits, Indices targets, std::int64_t first) override {
    check_cross_entropy_parts(parts, logits, targets);
    cuda::cross_entropy_parts(target_, parts, logits, targets, first);
  }
  void cross_entropy_merge(Sums merged, ConstSums parts, int ranks) override {
    check_cross_entropy_merge(merged, parts, ranks);
    cuda::cross_entropy_merge(target_, merged, parts, ranks);
  }
  void cross_entropy_backward(Matrix logits, Sums loss, ConstSums merged, Indices targets, std::int64_t first,
                              double weight) override {
    check_cross_entropy_backward(logits, loss, merged, targets);
    cuda::cross_entropy_backward(target_, logits, loss, merged, targets, first, weight);
  }

  void pool_rows(Matrix y, ConstMatrix x, Indices begin, Indices end) override {
    check_pool_rows(y, x, begin, end);
    cuda::pool_rows(target_, y, x, begin, end);
  }
  void pool_rows_backward(Matrix dx, ConstMatrix dy, Indices begin, Indices end) override {
    check_pool_rows_backward(dx, dy, begin, end);
    cuda::pool_rows_backward(target_, dx, dy, begin, end);
  }
  void gather_rows(Matrix y, ConstMatrix x, Indices index) override {
    check_gather_rows(y, x, index);
    cuda::gather_rows(target_, y, x, index);
  }
  void scatter_add_rows(Matrix y, ConstMatrix x, Indices index) override {
    check_scatter_add_rows(y, x, index);
    cuda::scatter_add_rows(target_, y, x, index);
  }

  void add(Matrix y, ConstMatrix x) override {
    check_add(y, x);
    cuda::add(target_, y, x);
  }
  void zero(Matrix y) override {
    check_zero(y);
    clear(y.data, y.size(), bytes_of(target_.dtype));
  }
  void zero(Sums y) override {
    check_sums("zero", y);
    clear(y.data, y.size(), sum_bytes_of(target_.dtype));
  }
  void round(Matrix y, ConstSums x) override {
    check_round(y, x);
    cuda::round(target_, y, x);
  }
  void scale(Sums y, double factor) override {
    check_sums("scale", y);
    cuda::scale(target_, y, factor);
  }

  void adamw(Matrix weight, Sums master, Sums m, Sums v, ConstSums gradient, const AdamWStep& step) override {
    check_adamw(weight, master, m, v, gradient, step);
    cuda::adamw(target_, weight, master, m, v, gradient, step);
  }

 private:
  void clear(void* data, std::int64_t count, std::size_t bytes) {
    if (count == 0) return;
    check_cuda(cudaMemsetAsync(data, 0, static_cast<std::size_t>(count) * bytes, target_.stream), "zero");
  }

  cuda::CudaTarget target_;
  cuda::CudaLinear linear_;
};

/// The current device. @throws Error (no_device) where it has no bf16 on tensor cores.
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

/// The device's own pool, told to keep its memory: else it would give it back to the system at every
/// synchronisation.
cudaMemPool_t pool_of_device(int device) {
  cudaMemPool_t pool = nullptr;
  check_cuda(cudaDeviceGetDefaultMemPool(&pool, device), "memory pool of the device");
  std::uint64_t threshold = std::uint64_t{1} << 30;
  check_cuda(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold),
             "memory pool of the device");
  return pool;
}

/// What a block may have of shared memory: 227 KiB on compute capability 9.0, 163 on 8.0, 99 on 8.6.
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
                                shared_bytes_of(device, options.shared_bytes)};
  return std::make_unique<CudaKernels>(target, options.multiprocessors);
}

}  // namespace dflop
