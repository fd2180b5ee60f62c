// make_nccl_communicator() makes a Communicator between GPUs of different processes, on top of NCCL.
#pragma once

#include <functional>
#include <memory>

#include "backend/communicator.hpp"
#include "backend/device.hpp"
#include "backend/nccl/comms.hpp"
#include "backend/process/rendezvous.hpp"

namespace dflop {

/// An NcclSeam holds the functions that the communicator needs from the rank's GPU.
struct NcclSeam {
  /// Makes a view of the rank's GPU, which is the calling thread's current device. Views share no streams
  /// and no memory, because freeing memory may make the streams of one view wait for each other.
  std::function<std::unique_ptr<Device>()> new_device;
  std::function<cudaStream_t(DeviceStream&)> native_stream;
  /// Returns whether the GPU has reached a recorded event. Thread-safe.
  std::function<bool(DeviceEvent&)> reached;
};

/// Makes one rank's communicator. The table and the rendezvous must outlive it.
///
/// Every route, from one rank to another, has an NCCL communicator of two ranks and its own stream on both
/// ranks. A send copies its data in the caller's stream, which then continues; the route's stream sends the
/// copy. A receive or a collective blocks the caller's stream until it is done. A program that completes if
/// sends do not wait (core/program/lowering.hpp guarantees this for Programs) cannot deadlock, for these
/// reasons:
///
///   * A posted receive is in its route's stream and waits for its sender and for earlier users of its
///     memory.
///   * No caller's stream waits for a send. A send waits only for earlier sends of its route, its copy, and
///     its receiver.
///   * A route has only sends on one side and only receives on the other, in the same order. So the first
///     pending send and the first pending receive are partners and wait for nothing else.
///   * Started collectives are in a separate stream, in the order of start(). A caller's stream waits for
///     them only in finish().
///   * Other streams are independent of the routes' streams only if each stream has a hardware queue (at most
///     32, for which cuda_device_count() asks) and the device has capacity for the blocks of all pending
///     sends and posted receives: kRouteCtas per route. With more streams than queues (NCCL adds two per
///     communicator), work may wait behind other work of this rank. As all work of a rank is entered in one
///     order, that costs only time.
///
/// In addition to Communicator's rules, NCCL computes sums in its own order, and last_arrival() waits for
/// the last collective or receive. The destructor frees memory that other ranks may still read. So it first
/// waits until this rank's sends are received, for at most the run's timeout, and then until all ranks have
/// finished (Rendezvous::leave()).
std::unique_ptr<Communicator> make_nccl_communicator(const NcclTable& table, Rendezvous& rendezvous,
                                                     NcclSeam seam);

/// A route's kernels have at most this many thread blocks.
inline constexpr int kRouteCtas = 2;

}  // namespace dflop
