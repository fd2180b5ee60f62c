#include "backend/cuda/gpu.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "backend/cuda/short_memory.hpp"
#include "backend/gpus.hpp"
#include "core/error.hpp"
#include "core/support/clock.hpp"
#include "kernels/cuda/runtime.hpp"

namespace dflop {
namespace {

/// This is the max age of an anchor. In f32 milliseconds, differences of up to 4 s are accurate to a quarter
/// of a microsecond, which allows streams to lag 1 s behind their threads.
constexpr Nanoseconds kAnchorAge{2'000'000'000};    // then one thread makes a new anchor
constexpr Nanoseconds kAnchorLimit{3'000'000'000};  // until then the others use the old anchor

cudaMemPool_t make_pool(int device) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  cudaMemPool_t pool = nullptr;
  check_cuda(cudaMemPoolCreate(&pool, &properties), "a memory pool");
  std::uint64_t keep = UINT64_MAX;  // freed memory stays in the pool
  check_cuda(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep), "a memory pool");
  int wait = 0;  // a stream must not wait for another stream's memory, because that would couple ranks
  check_cuda(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &wait),
             "a memory pool");
  return pool;
}

}  // namespace

CudaGpu::CudaGpu(int index) : index_(index) {
  const GpuInfo info = cuda_device(index);
  name_ = info.name;
  multiprocessors_ = info.multiprocessors;
  use();
  int cache = 0;
  check_cuda(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, index), "the size of the L2 cache");
  cache_bytes_ = static_cast<std::size_t>(cache);
  pool_ = make_pool(index);
  check_cuda(cudaStreamCreateWithFlags(&side_, cudaStreamNonBlocking), "a stream");
  const std::shared_ptr<Anchor> first = new_anchor();
  first->time = first->taken;
  anchor_ = first;
}

CudaGpu::~CudaGpu() {
  cudaSetDevice(index_);
  for (cudaEvent_t event : idle_events_) cudaEventDestroy(event);
  if (side_ != nullptr) cudaStreamDestroy(side_);
  if (pool_ != nullptr) cudaMemPoolDestroy(pool_);
}

void CudaGpu::use() const {
  check_cuda(cudaSetDevice(index_), "GPU " + std::to_string(index_));
}

void* CudaGpu::allocate(std::size_t bytes, cudaStream_t stream) {
  use();
  {
    const std::lock_guard lock(memory_mutex_);
    memory_streams_.insert(stream);
  }
  const auto take = [&]() -> void* {
    void* data = nullptr;
    if (cudaMallocFromPoolAsync(&data, bytes, pool_, stream) == cudaSuccess) return data;
    cudaGetLastError();  // clears the error
    return nullptr;
  };
  // Free pieces stay fragmented in the pool until it returns them to the system.
  return take_or_remedy(
      take, [&] { wait_for_memory(); }, [&] { check_cuda(cudaMemPoolTrimTo(pool_, 0), "a memory pool"); });
}

void CudaGpu::forget(cudaStream_t stream) {
  const std::lock_guard lock(memory_mutex_);
  memory_streams_.erase(stream);
}

/// Waits until all memory freed so far is available, that is, until the streams in which it was freed have
/// reached that point.
void CudaGpu::wait_for_memory() {
  using Point = std::unique_ptr<CUevent_st, cudaError_t (*)(cudaEvent_t)>;
  std::vector<Point> points;
  const auto mark = [&](cudaStream_t stream) {
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event");
    points.emplace_back(event, cudaEventDestroy);
    check_cuda(cudaEventRecord(event, stream), "recording an event");
  };
  {
    const std::lock_guard lock(memory_mutex_);  // no stream is destroyed before it is marked
    for (cudaStream_t stream : memory_streams_) mark(stream);
  }
  mark(side_);
  for (const Point& point : points) check_cuda(cudaEventSynchronize(point.get()), "waiting for memory");
}

Bytes CudaGpu::free_memory() const {
  use();
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "the GPU's free memory");
  return {static_cast<std::int64_t>(free_bytes)};
}

std::shared_ptr<CudaEvent> CudaGpu::make_event() {
  return std::make_shared<CudaEvent>(shared_from_this());
}

std::shared_ptr<CudaGpu::Anchor> CudaGpu::new_anchor() {
  auto anchor = std::make_shared<Anchor>();
  check_cuda(cudaEventCreate(&anchor->event), "an event");
  check_cuda(cudaEventRecord(anchor->event, side_), "recording an event");
  check_cuda(cudaEventSynchronize(anchor->event), "waiting for an event");
  anchor->taken = host_time();
  return anchor;
}

std::shared_ptr<const CudaGpu::Anchor> CudaGpu::latest_anchor() {
  const std::lock_guard lock(mutex_);
  return anchor_;
}

/// Making an anchor waits for the GPU, so other threads use the old anchor as long as it is accurate enough.
std::shared_ptr<const CudaGpu::Anchor> CudaGpu::anchor() {
  std::shared_ptr<const Anchor> latest = latest_anchor();
  const Nanoseconds age = host_time() - latest->taken;
  if (age < kAnchorAge) return latest;
  std::unique_lock making(anchor_mutex_, std::defer_lock);
  if (age >= kAnchorLimit) {
    making.lock();
  } else if (!making.try_lock()) {
    return latest;
  }
  latest = latest_anchor();
  if (host_time() - latest->taken < kAnchorAge) return latest;  // another thread has made it meanwhile
  use();
  const std::shared_ptr<Anchor> next = new_anchor();
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, latest->event, next->event), "the time of an event");
  next->time = latest->time + Nanoseconds(std::llround(double{milliseconds} * 1e6));
  const std::lock_guard lock(mutex_);
  anchor_ = next;
  return next;
}

cudaEvent_t CudaGpu::take_event() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_events_.empty()) {
      cudaEvent_t event = idle_events_.back();
      idle_events_.pop_back();
      return event;
    }
  }
  use();
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreate(&event), "an event");
  return event;
}

void CudaGpu::give_back(cudaEvent_t event) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    idle_events_.push_back(event);
  } catch (...) {  // no memory for the list entry
    cudaEventDestroy(event);
  }
}

CudaEvent::CudaEvent(std::shared_ptr<CudaGpu> gpu) : gpu_(std::move(gpu)), event_(gpu_->take_event()) {}

CudaEvent::~CudaEvent() {
  gpu_->give_back(event_);
}

Nanoseconds CudaEvent::time() {
  if (anchor_ == nullptr) {
    throw Error(ErrorKind::internal, "an event has no time before a stream records it");
  }
  check_cuda(cudaEventSynchronize(event_), "waiting for an event");
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, anchor_->event, event_), "the time of an event");
  return anchor_->time + Nanoseconds(std::llround(double{milliseconds} * 1e6));
}

bool CudaEvent::reached() const {
  if (anchor_ == nullptr) return false;
  const cudaError_t status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());  // clears it, because a later launch would report it
    return false;
  }
  check_cuda(status, "asking for an event");
  return true;
}

void CudaEvent::record(cudaStream_t stream) {
  std::shared_ptr<const CudaGpu::Anchor> anchor = gpu_->anchor();
  check_cuda(cudaEventRecord(event_, stream), "recording an event");
  anchor_ = std::move(anchor);
}

void CudaEvent::make_wait(cudaStream_t stream) const {
  if (anchor_ == nullptr) {
    throw Error(ErrorKind::internal, "a stream waits for an event that was never recorded");
  }
  check_cuda(cudaStreamWaitEvent(stream, event_, 0), "waiting for an event");
}

CudaEvent& of_cuda(DeviceEvent& event) {
  auto* cuda = dynamic_cast<CudaEvent*>(&event);
  if (cuda == nullptr) {
    throw Error(ErrorKind::internal, "a stream of a GPU can wait only for events of GPUs");
  }
  return *cuda;
}

CudaStaging::~CudaStaging() {
  try {
    if (!read_.empty()) read_.back()->time();  // the device may still read
  } catch (...) {                              // the device has failed and reads no more
  }
  if (memory_ != nullptr) cudaFreeHost(memory_);
}

std::size_t CudaStaging::place(std::size_t bytes) {
  for (;;) {
    if (const auto offset = places_.take(bytes)) return *offset;
    read_.front()->time();  // waits for it
    read_.pop_front();
    places_.give_back_oldest();
  }
}

void CudaStaging::copy_to_device(void* destination, const void* source, std::size_t bytes,
                                 cudaStream_t stream) {
  if (memory_ == nullptr && bytes > 0) {
    void* memory = nullptr;
    check_cuda(cudaHostAlloc(&memory, kCapacity, cudaHostAllocDefault), "pinned memory for copies");
    memory_ = static_cast<std::byte*>(memory);
  }
  for (std::size_t done = 0; done < bytes; done += kPiece) {
    const std::size_t piece = std::min(kPiece, bytes - done);
    const std::shared_ptr<CudaEvent> read = gpu_->make_event();
    std::byte* from = memory_ + place(piece);
    read_.push_back(read);
    std::memcpy(from, static_cast<const std::byte*>(source) + done, piece);
    const cudaError_t status = cudaMemcpyAsync(static_cast<std::byte*>(destination) + done, from, piece,
                                               cudaMemcpyHostToDevice, stream);
    read->record(stream);
    check_cuda(status, "a copy to the GPU");
  }
}

void CudaStream::record(DeviceEvent& event) {
  gpu_->use();
  of_cuda(event).record(handle_);
}

void CudaStream::wait(DeviceEvent& event) {
  gpu_->use();
  of_cuda(event).make_wait(handle_);
}

void CudaStream::synchronize() {
  check_cuda(cudaStreamSynchronize(handle_), "the work of a stream");
}

void CudaStream::copy_to_device(void* destination, const void* source, std::size_t bytes) {
  gpu_->use();
  staging_.copy_to_device(destination, source, bytes, handle_);
}

void CudaStream::copy_to_host(void* destination, const void* source, std::size_t bytes) {
  if (bytes == 0) return;
  check_cuda(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDeviceToHost, handle_),
             "a copy from the GPU");
}

void CudaStream::copy(void* destination, const void* source, std::size_t bytes) {
  if (bytes == 0) return;
  check_cuda(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDeviceToDevice, handle_),
             "a copy on the GPU");
}

CudaStream& of_cuda(DeviceStream& stream) {
  auto* cuda = dynamic_cast<CudaStream*>(&stream);
  if (cuda == nullptr) throw Error(ErrorKind::internal, "expected a stream of a GPU");
  return *cuda;
}

}  // namespace dflop
