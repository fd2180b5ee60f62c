#include "backend/cuda/stream.hpp"

#include <algorithm>
#include <cstring>

#include "core/error.hpp"
#include "kernels/cuda/runtime.hpp"

namespace dflop {

CudaStaging::~CudaStaging() {
  try {
    if (!read_.empty()) read_.back()->time();  // the device may still read
  } catch (...) {                              // it has failed and reads no more
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
