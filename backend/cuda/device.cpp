#include <algorithm>
#include <utility>
#include <vector>

#include "backend/cuda/gpu.hpp"
#include "backend/cuda/world.hpp"
#include "kernels/cuda/runtime.hpp"

namespace dflop {
namespace {

/// A CudaRank holds the memory and the streams of one rank. Memory is allocated and freed in the order of the
/// first stream.
class CudaRank {
 public:
  CudaRank(std::shared_ptr<CudaGpu> gpu, const CudaDeviceOptions& options)
      : gpu_(std::move(gpu)),
        partition_(options.partition),
        rank_(options.rank),
        attention_(options.attention),
        account_("rank " + std::to_string(options.rank) + " on " + gpu_->name(), options.memory),
        first_(new_stream()) {}
  CudaRank(const CudaRank&) = delete;
  CudaRank& operator=(const CudaRank&) = delete;
  /// Waits, because frees may be pending, and so may work of a partition whose green context ends with the
  /// rank.
  ~CudaRank() {
    cudaStreamSynchronize(first_);
    gpu_->forget(first_);
    cudaStreamDestroy(first_);
  }

  CudaGpu& gpu() { return *gpu_; }
  const std::shared_ptr<CudaGpu>& shared_gpu() const { return gpu_; }
  MemoryAccount& account() { return account_; }
  const AttentionOptions& attention() const { return attention_; }
  int multiprocessors() const { return partition_ ? partition_->multiprocessors_of(rank_) : 0; }

  void* take(std::size_t bytes) {
    account_.check(bytes);
    void* data = nullptr;
    if (bytes > 0) {
      data = gpu_->allocate(bytes, first_);
      if (data == nullptr) account_.refused(bytes, gpu_->free_memory());
      for (cudaStream_t stream : further_) order(first_, stream);
    }
    account_.add(bytes);
    return data;
  }

  void give_back(void* data, std::size_t bytes) {
    account_.remove(bytes);
    if (data == nullptr) return;
    for (cudaStream_t stream : further_) order(stream, first_);
    CudaGpu::free(data, first_);
  }

  cudaStream_t first() const { return first_; }
  cudaStream_t add_stream() {
    further_.push_back(new_stream());
    order(first_, further_.back());  // memory allocated before is valid there
    return further_.back();
  }
  void remove_stream(cudaStream_t stream) {
    order(stream, first_);  // memory freed later may still be read there
    further_.erase(std::find(further_.begin(), further_.end(), stream));
    cudaStreamDestroy(stream);
  }

 private:
  cudaStream_t new_stream() const {
    gpu_->use();
    if (partition_ != nullptr) return static_cast<cudaStream_t>(partition_->make_stream(rank_));
    cudaStream_t stream = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    return stream;
  }

  /// Makes later work in `after` wait for the work that is in `before` now.
  void order(cudaStream_t before, cudaStream_t after) {
    const std::shared_ptr<CudaEvent> event = gpu_->make_event();
    event->record(before);
    event->make_wait(after);
  }

  std::shared_ptr<CudaGpu> gpu_;
  std::shared_ptr<CudaPartition> partition_;
  int rank_;
  AttentionOptions attention_;
  MemoryAccount account_;
  cudaStream_t first_;
  std::vector<cudaStream_t> further_;
};

class CudaBuffer final : public Buffer {
 public:
  CudaBuffer(std::shared_ptr<CudaRank> rank, std::size_t bytes)
      : Buffer(rank->take(bytes), bytes), rank_(std::move(rank)) {}
  ~CudaBuffer() override {
    try {
      rank_->give_back(data(), bytes());
    } catch (...) {  // the GPU has failed; the next call on it reports that
    }
  }

 private:
  std::shared_ptr<CudaRank> rank_;
};

/// Returns an owner that destroys a further stream when it is released.
std::shared_ptr<void> owner_of(const std::shared_ptr<CudaRank>& rank, cudaStream_t stream) {
  return {stream, [rank](void* handle) {
            try {
              rank->remove_stream(static_cast<cudaStream_t>(handle));
            } catch (...) {  // as for buffers
            }
          }};
}

class CudaDevice final : public Device {
 public:
  CudaDevice(std::shared_ptr<CudaGpu> gpu, const CudaDeviceOptions& options)
      : rank_(std::make_shared<CudaRank>(std::move(gpu), options)) {}

  std::string name() const override { return rank_->gpu().name(); }
  void enter_thread() override { rank_->gpu().use(); }
  Bytes cache() const override { return {static_cast<std::int64_t>(rank_->gpu().cache_bytes())}; }
  /// 8 values are 16 bytes in bf16. cuBLASLt has fast products only for rows of whole 16 bytes, and kernels
  /// use vectors.
  int row_alignment() const override { return 8; }

  std::unique_ptr<Buffer> allocate(std::size_t bytes) override {
    return std::make_unique<CudaBuffer>(rank_, bytes);
  }

  /// Memory is allocated and freed in the first stream.
  std::unique_ptr<DeviceStream> make_stream() override {
    if (!std::exchange(first_given_, true)) {
      return std::make_unique<CudaStream>(rank_->shared_gpu(), rank_->first(), rank_);
    }
    const cudaStream_t stream = rank_->add_stream();
    return std::make_unique<CudaStream>(rank_->shared_gpu(), stream, owner_of(rank_, stream));
  }

  std::unique_ptr<DeviceEvent> make_event() override {
    return std::make_unique<CudaEvent>(rank_->shared_gpu());
  }
  std::unique_ptr<Kernels> make_kernels(DeviceStream& stream, DType dtype) override {
    rank_->gpu().use();
    CudaKernelOptions options{of_cuda(stream).handle(), rank_->multiprocessors(), rank_->gpu().pool()};
    options.attention = rank_->attention();
    options.allocate = [rank = rank_](std::size_t bytes) -> std::shared_ptr<void> {
      const auto buffer = std::make_shared<CudaBuffer>(rank, bytes);
      return {buffer, buffer->data()};
    };
    return make_cuda_kernels(dtype, options);
  }

  Bytes in_use() const override { return rank_->account().in_use(); }
  Bytes most_in_use() const override { return rank_->account().most_in_use(); }
  void reset_most_in_use() override { rank_->account().reset_most_in_use(); }

 private:
  std::shared_ptr<CudaRank> rank_;
  bool first_given_ = false;
};

}  // namespace

std::unique_ptr<Device> make_cuda_device(std::shared_ptr<CudaGpu> gpu, const CudaDeviceOptions& options) {
  return std::make_unique<CudaDevice>(std::move(gpu), options);
}

}  // namespace dflop
