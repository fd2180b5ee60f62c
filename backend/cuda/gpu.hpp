// A CudaGpu is one GPU that several ranks share. All ranks use its memory pool, its events and the events'
// clock; each rank has its own streams. Include this header only in sources that are built with the CUDA
// toolkit.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "backend/cuda/ring_places.hpp"
#include "backend/device.hpp"
#include "core/units.hpp"

namespace dflop {

class CudaEvent;

/// A CudaGpu is shared by all ranks on one GPU. It is thread-safe.
class CudaGpu : public std::enable_shared_from_this<CudaGpu> {
 public:
  /// @throws Error (no_device) if there is no GPU with that index.
  explicit CudaGpu(int index);
  ~CudaGpu();
  CudaGpu(const CudaGpu&) = delete;
  CudaGpu& operator=(const CudaGpu&) = delete;

  const std::string& name() const { return name_; }
  int index() const { return index_; }
  int multiprocessors() const { return multiprocessors_; }
  std::size_t cache_bytes() const { return cache_bytes_; }
  /// Makes the GPU the calling thread's current device, which most CUDA calls need.
  void use() const;

  /// Returns memory that is valid once `stream` reaches this call. If the GPU has too little memory, the call
  /// waits for all streams that have allocated memory and tries again; if that fails, too, it returns null.
  /// It does not wait for other streams, because a send may stay in them until it is received. `bytes` must
  /// not be 0. Before a stream is destroyed, forget() must be called.
  void* allocate(std::size_t bytes, cudaStream_t stream);
  void forget(cudaStream_t stream);
  /// Frees memory once `stream` reaches this call.
  static void free(void* data, cudaStream_t stream) noexcept { cudaFreeAsync(data, stream); }
  Bytes free_memory() const;
  /// Returns the memory pool that allocate() uses. All code uses this one, because a second pool would hold
  /// memory that this one needs.
  cudaMemPool_t pool() const { return pool_; }

  std::shared_ptr<CudaEvent> make_event();
  /// Returns a stream for short work that must run at once, independently of the ranks' streams.
  cudaStream_t side_stream() const { return side_; }

 private:
  friend class CudaEvent;

  /// An Anchor is a recorded event whose time is known. CUDA reports times as differences in f32
  /// milliseconds, so only the difference to a recent event is exact to a fraction of a microsecond.
  struct Anchor {
    cudaEvent_t event = nullptr;
    Nanoseconds time{};
    Nanoseconds taken{};  // host time

    Anchor() = default;
    Anchor(const Anchor&) = delete;
    Anchor& operator=(const Anchor&) = delete;
    ~Anchor() {
      if (event != nullptr) cudaEventDestroy(event);
    }
  };

  /// Returns an anchor that is at most some seconds old. It precedes all events recorded later.
  std::shared_ptr<const Anchor> anchor();
  std::shared_ptr<const Anchor> latest_anchor();
  std::shared_ptr<Anchor> new_anchor();
  void wait_for_memory();
  cudaEvent_t take_event();
  void give_back(cudaEvent_t event) noexcept;

  int index_;
  std::string name_;
  int multiprocessors_ = 0;
  std::size_t cache_bytes_ = 0;
  cudaMemPool_t pool_ = nullptr;
  cudaStream_t side_ = nullptr;
  std::mutex anchor_mutex_;  // held while a new anchor is made; locked before mutex_
  std::mutex mutex_;         // guards the next two; never held while waiting for the GPU
  std::vector<cudaEvent_t> idle_events_;
  std::shared_ptr<const Anchor> anchor_;
  std::mutex memory_mutex_;                // guards the next
  std::set<cudaStream_t> memory_streams_;  // streams in which memory is allocated and freed
};

/// A CudaEvent gives GPU times, aligned with the host's clock at the start of the run. Other threads may wait
/// for it and ask for its time once they know that it is recorded.
class CudaEvent final : public DeviceEvent {
 public:
  explicit CudaEvent(std::shared_ptr<CudaGpu> gpu);
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override;

  Nanoseconds time() override;
  /// Returns whether the device has reached the event. @throws Error (internal) if the device has failed.
  bool reached() const;
  void record(cudaStream_t stream);
  /// Makes the stream wait for the event. @throws Error (internal) if it was not recorded.
  void make_wait(cudaStream_t stream) const;

 private:
  std::shared_ptr<CudaGpu> gpu_;
  cudaEvent_t event_;
  std::shared_ptr<const CudaGpu::Anchor> anchor_;  // for the latest recording
};

/// Casts the event to a CudaEvent. @throws Error (internal) for events of other devices.
CudaEvent& of_cuda(DeviceEvent& event);

/// A CudaStaging is a ring of pinned memory through which a stream copies data from the host. With it the
/// host does not wait for the device, and the device does not read host memory that has been reused. The host
/// waits only if the ring is full of copies that the device has not reached.
class CudaStaging {
 public:
  explicit CudaStaging(std::shared_ptr<CudaGpu> gpu) : gpu_(std::move(gpu)), places_(kCapacity) {}
  ~CudaStaging();
  CudaStaging(const CudaStaging&) = delete;
  CudaStaging& operator=(const CudaStaging&) = delete;

  void copy_to_device(void* destination, const void* source, std::size_t bytes, cudaStream_t stream);

 private:
  /// The ring has capacity for the pictures of a microbatch, such as 20 MB for 8,300 patches of 1,176 values
  /// in bf16. So the host can enqueue a microbatch's kernels while the device runs the previous microbatch.
  static constexpr std::size_t kCapacity = std::size_t{64} << 20;
  static constexpr std::size_t kPiece = std::size_t{4} << 20;

  std::size_t place(std::size_t bytes);

  std::shared_ptr<CudaGpu> gpu_;
  std::byte* memory_ = nullptr;  // allocated on first use
  RingPlaces places_;
  std::deque<std::shared_ptr<CudaEvent>> read_;  // by place: recorded after the device has read it
};

/// A CudaStream enqueues work in a cudaStream_t.
class CudaStream final : public DeviceStream {
 public:
  /// `owner` keeps `handle` alive.
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

/// Casts the stream to a CudaStream. @throws Error (internal) for streams of other devices.
CudaStream& of_cuda(DeviceStream& stream);

}  // namespace dflop
