// A CudaGpu is one GPU that several ranks share. The ranks share its memory pool, events and clock, but each
// rank has its own streams. Include this header only in sources that are built with the CUDA toolkit.
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

  /// Returns memory that is valid once `stream` reaches this call. If the GPU has too little memory, waits
  /// for all streams that have allocated memory and tries again; then returns the pool's free memory to the
  /// system and tries once more. Returns null if that fails too. Does not wait for other streams, because a
  /// send may stay in them until it is received. `bytes` must not be 0. Call forget() before the stream is
  /// destroyed.
  void* allocate(std::size_t bytes, cudaStream_t stream);
  void forget(cudaStream_t stream);
  /// Frees memory once `stream` reaches this call.
  static void free(void* data, cudaStream_t stream) noexcept { cudaFreeAsync(data, stream); }
  Bytes free_memory() const;
  /// Returns the pool that allocate() uses. All code must allocate from it, because a second pool would hold
  /// memory that this pool needs.
  cudaMemPool_t pool() const { return pool_; }

  std::shared_ptr<CudaEvent> make_event();
  /// Returns a stream for short work that must run at once, independently of the ranks' streams.
  cudaStream_t side_stream() const { return side_; }

 private:
  friend class CudaEvent;

  /// An Anchor is a recorded event whose time is known. It serves to find the times of later events: CUDA
  /// reports only the difference between two events, in f32 milliseconds, which is exact to a fraction of a
  /// microsecond only if the events are close in time.
  struct Anchor {
    cudaEvent_t event = nullptr;
    Nanoseconds time{};
    Nanoseconds taken{};  // host time at which the anchor was made

    Anchor() = default;
    Anchor(const Anchor&) = delete;
    Anchor& operator=(const Anchor&) = delete;
    ~Anchor() {
      if (event != nullptr) cudaEventDestroy(event);
    }
  };

  /// Returns an anchor that is at most some seconds old. Events that are recorded after this call are later
  /// than the anchor.
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
  std::mutex mutex_;         // guards idle_events_ and anchor_; never held while waiting for the GPU
  std::vector<cudaEvent_t> idle_events_;
  std::shared_ptr<const Anchor> anchor_;
  std::mutex memory_mutex_;                // guards memory_streams_
  std::set<cudaStream_t> memory_streams_;  // streams in which memory is allocated and freed
};

/// A CudaEvent gives GPU times on a clock that was aligned with the host's clock at the start of the run.
/// Another thread may wait for the event and ask for its time, but only after it knows that the event was
/// recorded.
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
  std::shared_ptr<const CudaGpu::Anchor> anchor_;  // the anchor for the time of the latest recording
};

/// Casts an event to a CudaEvent. @throws Error (internal) for events of other kinds of devices
CudaEvent& of_cuda(DeviceEvent& event);

/// A CudaStaging is a ring of pinned memory through which a stream copies data from the host. The host
/// copies data into the ring and continues, and may reuse the source at once; the device reads the ring
/// later. The host waits only if the ring is full of data that the device has not read.
class CudaStaging {
 public:
  explicit CudaStaging(std::shared_ptr<CudaGpu> gpu) : gpu_(std::move(gpu)), places_(kCapacity) {}
  ~CudaStaging();
  CudaStaging(const CudaStaging&) = delete;
  CudaStaging& operator=(const CudaStaging&) = delete;

  void copy_to_device(void* destination, const void* source, std::size_t bytes, cudaStream_t stream);

 private:
  /// The ring is large enough for the pictures of a microbatch, such as 20 MB for 8,300 patches of 1,176
  /// values in bf16. So the host can enqueue a microbatch's kernels while the device runs the previous
  /// microbatch.
  static constexpr std::size_t kCapacity = std::size_t{64} << 20;
  static constexpr std::size_t kPiece = std::size_t{4} << 20;

  std::size_t place(std::size_t bytes);

  std::shared_ptr<CudaGpu> gpu_;
  std::byte* memory_ = nullptr;  // allocated on first use
  RingPlaces places_;
  std::deque<std::shared_ptr<CudaEvent>> read_;  // by taken place: reached when the device has read it
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

/// Casts a stream to a CudaStream. @throws Error (internal) for streams of other kinds of devices
CudaStream& of_cuda(DeviceStream& stream);

}  // namespace dflop
