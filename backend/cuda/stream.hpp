// This is the stream of one rank on a GPU, for sources that are built with the toolkit only.
#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <memory>

#include "backend/cuda/gpu.hpp"
#include "backend/cuda/ring_places.hpp"

namespace dflop {

/// A CudaStaging is pinned memory through which a stream takes what it copies from the host, so that neither
/// the host waits for the device nor the device reads memory that has been used again.
class CudaStaging {
 public:
  explicit CudaStaging(std::shared_ptr<CudaGpu> gpu) : gpu_(std::move(gpu)), places_(kCapacity) {}
  ~CudaStaging();
  CudaStaging(const CudaStaging&) = delete;
  CudaStaging& operator=(const CudaStaging&) = delete;

  void copy_to_device(void* destination, const void* source, std::size_t bytes, cudaStream_t stream);

 private:
  static constexpr std::size_t kCapacity = std::size_t{16} << 20;
  static constexpr std::size_t kPiece = kCapacity / 4;

  std::size_t place(std::size_t bytes);

  std::shared_ptr<CudaGpu> gpu_;
  std::byte* memory_ = nullptr;  // made when it is first needed
  RingPlaces places_;
  std::deque<std::shared_ptr<CudaEvent>> read_;  // by place: the device has read it
};

/// A CudaStream puts work into a cudaStream_t.
class CudaStream final : public DeviceStream {
 public:
  /// `handle` lives as long as `owner`, whatever that is.
  CudaStream(std::shared_ptr<CudaGpu> gpu, cudaStream_t handle, std::shared_ptr<void> owner)
      : gpu_(std::move(gpu)), handle_(handle), owner_(std::move(owner)), staging_(gpu_) {}

  void record(DeviceEvent& event) override;
  void wait(DeviceEvent& event) override;
  void synchronize() override;
  void copy_to_device(void* destination, const void* source, std::size_t bytes) override;
  void copy_to_host(void* destination, const void* source, std::size_t bytes) override;
  void copy(void* destination, const void* source, std::size_t bytes) override;

  cudaStream_t handle() const { return handle_; }

 private:
  std::shared_ptr<CudaGpu> gpu_;
  cudaStream_t handle_;
  std::shared_ptr<void> owner_;
  CudaStaging staging_;
};

/// Returns the stream as one of a GPU. @throws Error (internal) for streams of other devices.
CudaStream& of_cuda(DeviceStream& stream);

}  // namespace dflop
