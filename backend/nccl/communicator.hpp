// GPUs of different processes communicate here, through NCCL.
#pragma once

#include <functional>
#include <memory>

#include "backend/communicator.hpp"
#include "backend/device.hpp"
#include "backend/nccl/comms.hpp"
#include "backend/process/rendezvous.hpp"

namespace dflop {

/// An NcclSeam is what the communicator needs of the rank's GPU.
struct NcclSeam {
  /// Makes views of the GPU that have no stream and no memory in common: one that gives memory back may make
  /// its streams wait for each other. The GPU is the calling threads' current one.
  std::function<std::unique_ptr<Device>()> new_device;
  std::function<cudaStream_t(DeviceStream&)> native_stream;
  /// Returns whether the device has come to an event that was recorded; from any thread.
  std::function<bool(DeviceEvent&)> reached;
};

/// Makes one rank's end; table and rendezvous outlive it.
///
/// Every route, from one rank to one other, has a communicator of two and on either side a stream of its own.
/// A send copies its data in the caller's stream, which goes on at once; the route's stream sends the copy. A
/// receive and a collective hold up the caller's stream until they are done. So there is no deadlock in what
/// ends with sends that do not wait (as core/program/lowering.hpp promises of Programs):
///
///   * A receive that is posted ahead stands in its route's stream and waits for its sender, and for what has
///     used its memory before.
///   * No stream of a caller waits for a send, and no send for anything but earlier sends of its route, its
///     copy, and its receiver.
///   * One route holds sends alone on one side and receives alone on the other, in the same order; so the
///     first of them that are not done are each other's partners, and wait for nothing else.
///   * Collectives that are started stand in one stream of their own, in the order of start(); a caller's
///   stream
///     waits for them in finish() alone.
///   * That work of other streams does not wait for those of a route needs a hardware queue for each
///     (32 at most, which cuda_device_count() asks for), and room on the device for the blocks of all sends
///     and posted receives that are under way: kRouteCtas for each route. With more streams than queues, to
///     which NCCL adds two for each communicator, work may wait behind others' of this rank; as all of a rank
///     is entered in one order, that costs time alone.
///
/// Beside what Communicator says: sums are NCCL's; the last collective or receive is waited for by
/// last_arrival(). The destructor waits until what this rank has sent is received, and until all ranks have
/// come to their end, each no longer than the run's timeout: who frees its memory before may still be read.
std::unique_ptr<Communicator> make_nccl_communicator(const NcclTable& table, Rendezvous& rendezvous,
                                                     NcclSeam seam);

/// The kernels of a route have so many blocks of threads at most.
inline constexpr int kRouteCtas = 2;

}  // namespace dflop
