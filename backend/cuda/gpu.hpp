// The ranks on one GPU share its memory pool, its events and their clock, and have streams of their own. This
// header is for sources that are built with the toolkit only.
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

/// A CudaGpu is shared by all ranks on one GPU. Functions may be called from any thread.
class CudaGpu : public std::enable_shared_from_this<CudaGpu> {
 public:
  /// @throws Error (no_device) where there is no GPU of that index.
  explicit CudaGpu(int index);
  ~CudaGpu();
  CudaGpu(const CudaGpu&) = delete;
  CudaGpu& operator=(const CudaGpu&) = delete;

  const std::string& name() const { return name_; }
  int index() const { return index_; }
  int multiprocessors() const { return multiprocessors_; }
  std::size_t cache_bytes() const { return cache_bytes_; }
  /// Makes the GPU the current device of the calling thread, as most calls of CUDA need.
  void use() const;

  /// Returns memory that is there when `stream` comes to it; null where the GPU has no more, even after all
  /// streams for which it was called have come to their end. Other streams are not waited for: a send stands
  /// in them until it is received. Not for no bytes. Who ends the stream calls forget() before.
  void* allocate(std::size_t bytes, cudaStream_t stream);
  void forget(cudaStream_t stream);
  /// Gives memory back when `stream` comes to it.
  static void free(void* data, cudaStream_t stream) noexcept { cudaFreeAsync(data, stream); }
  Bytes free_memory() const;
  /// Returns what allocate() takes from: no second pool holds memory back that this one needs.
  cudaMemPool_t pool() const { return pool_; }

  std::shared_ptr<CudaEvent> make_event();
  /// Returns a stream that does nothing but what is to be done beside the ranks' streams, and at once.
  cudaStream_t side_stream() const { return side_; }

 private:
  friend class CudaEvent;

  /// An Anchor is a recorded point whose time is known. CUDA tells times as differences in f32 milliseconds,
  /// so that only those to a point nearby are exact to a fraction of a microsecond.
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

  /// Returns an anchor that was taken in the last seconds. It lies before all that is recorded afterwards.
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
  std::mutex anchor_mutex_;  // of who makes a new anchor; taken before the other
  std::mutex mutex_;         // of the following, never held while the GPU is waited for
  std::vector<cudaEvent_t> idle_events_;
  std::shared_ptr<const Anchor> anchor_;
  std::mutex memory_mutex_;                // of the next
  std::set<cudaStream_t> memory_streams_;  // in which memory is taken, and so given back
};

/// A CudaEvent's times are those of the GPU, from the host's clock at the start of the run on. Other threads
/// may wait for it and ask for its time once they know that it is recorded.
class CudaEvent final : public DeviceEvent {
 public:
  explicit CudaEvent(std::shared_ptr<CudaGpu> gpu);
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override;

  Nanoseconds time() override;
  /// Returns whether the device has come to the event. @throws Error (internal) where the device has failed.
  bool reached() const;
  void record(cudaStream_t stream);
  /// Lets the stream wait for the event. @throws Error (internal) before it is recorded.
  void make_wait(cudaStream_t stream) const;

 private:
  std::shared_ptr<CudaGpu> gpu_;
  cudaEvent_t event_;
  std::shared_ptr<const CudaGpu::Anchor> anchor_;  // of the latest recording
};

/// Returns the event as one of a GPU. @throws Error (internal) for events of other devices.
CudaEvent& of_cuda(DeviceEvent& event);

/// A CudaStaging is pinned memory through which a stream takes what it copies from the host, so that neither
/// the host waits for the device nor the device reads memory that has been used again. The host waits only
/// where the device has not come to the copies of a whole ring yet, however many these are.
class CudaStaging {
 public:
  explicit CudaStaging(std::shared_ptr<CudaGpu> gpu) : gpu_(std::move(gpu)), places_(kCapacity) {}
  ~CudaStaging();
  CudaStaging(const CudaStaging&) = delete;
  CudaStaging& operator=(const CudaStaging&) = delete;

  void copy_to_device(void* destination, const void* source, std::size_t bytes, cudaStream_t stream);

 private:
  /// The pictures of a microbatch fit in, as 20 MB of 8,300 patches of 1,176 values in bf16: the host enters
  /// its kernels while the device is at the one before.
  static constexpr std::size_t kCapacity = std::size_t{64} << 20;
  static constexpr std::size_t kPiece = std::size_t{4} << 20;

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
