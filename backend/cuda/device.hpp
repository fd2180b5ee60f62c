// This is a GPU as the device of a rank. The header needs no CUDA; what it declares is there only in builds
// with it.
#pragma once

#include <memory>
#include <optional>

#include "backend/device.hpp"
#include "core/units.hpp"

namespace dflop {

class CudaGpu;
class CudaPartition;

/// Makes what all ranks on one GPU share. @throws Error (no_device)
std::shared_ptr<CudaGpu> open_cuda_gpu(int index);

struct CudaDeviceOptions {
  int rank = 0;                 ///< for messages
  std::optional<Bytes> memory;  ///< the most that may be in use at once; none: what the GPU has left
  std::shared_ptr<CudaPartition> partition;  ///< of the multiprocessors, by rank; none: all are shared
};

/// Makes a device whose streams run behind the calling thread. Buffers are given back in the order of the
/// rank's first stream, so that what reads them may still be on its way; further streams wait for that one
/// wherever memory is taken or given back. Bytes in use are those that were asked for, as the rank's thread
/// has come to them. What is copied to the device may be used again when the call returns.
///
/// Buffers, streams and events may outlive the device; the last of it, its buffers and its streams waits for
/// the rank's work. Streams take events of GPUs only.
std::unique_ptr<Device> make_cuda_device(std::shared_ptr<CudaGpu> gpu, const CudaDeviceOptions& options);

/// Returns the cudaStream_t of a stream that such a device has made. @throws Error (internal) for other
/// streams.
void* cuda_stream_of(DeviceStream& stream);

/// Returns whether the device has come to an event that such a device has made and a stream has recorded;
/// from any thread. @throws Error (internal) for other events, or where the GPU has failed.
bool cuda_event_reached(DeviceEvent& event);

}  // namespace dflop
