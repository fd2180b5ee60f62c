// make_cuda_world() makes a World whose ranks share one GPU. Each rank is a thread with its own streams and
// memory account. This header does not need CUDA, but its functions exist only in builds with CUDA.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/world.hpp"
#include "core/error.hpp"
#include "core/quanta.hpp"

namespace dflop {

class CudaGpu;
struct HostSum;

/// kPartitionName ends the device's name in a World that partitions the GPU among ranks.
inline constexpr std::string_view kPartitionName = " multiprocessors a rank";

/// Returns the number of a GPU's groups of multiprocessors that each rank gets, which is the same for all
/// ranks.
/// @throws Error (input) for more ranks than groups
inline int groups_of_a_rank(int ranks, int groups) {
  if (ranks <= groups) return groups / ranks;
  throw Error(ErrorKind::input, "the GPU cannot be partitioned for " + std::to_string(ranks) +
                                    " ranks: its multiprocessors come in " + std::to_string(groups) +
                                    " groups, which cannot be divided");
}

/// A GroupRange is a range of consecutive groups of multiprocessors.
struct GroupRange {
  int first = 0;
  int count = 1;
  bool operator==(const GroupRange&) const = default;
};

/// Returns the groups of multiprocessors of each rank; ranks do not share groups. If each rank has its own
/// device (`shared_devices` is 0), all ranks get the same number of groups. If the second half of the ranks
/// shares the devices of the first half, all devices get the same number. The first rank of a device then
/// gets encoder_quanta() of `first_share`, and the second rank gets the rest. Leftover groups are unused.
/// @throws Error (input) for more ranks than groups
inline std::vector<GroupRange> groups_of_ranks(int ranks, int shared_devices, double first_share,
                                               int groups) {
  const int each = groups_of_a_rank(ranks, groups);
  std::vector<GroupRange> ranges;
  if (shared_devices == 0) {
    for (int rank = 0; rank < ranks; ++rank) ranges.push_back({rank * each, each});
    return ranges;
  }
  const int device = groups_of_a_rank(shared_devices, groups);
  const int first = encoder_quanta(device, first_share);
  for (int d = 0; d < shared_devices; ++d) ranges.push_back({d * device, first});
  for (int d = 0; d < shared_devices; ++d) ranges.push_back({d * device + first, device - first});
  return ranges;
}

/// A CudaPartition divides the multiprocessors of one GPU among ranks with CUDA's green contexts, so that
/// ranks do not compete for compute. Caches and memory bandwidth stay shared.
class CudaPartition {
 public:
  virtual ~CudaPartition() = default;
  virtual int multiprocessors_of(int rank) const = 0;
  virtual int groups() const = 0;  ///< number of groups of multiprocessors on the GPU
  /// Returns a cudaStream_t. The partition must outlive it.
  virtual void* make_stream(int rank) = 0;
};

/// Makes a partition of GPU `gpu` as groups_of_ranks() divides it. The GPU is split only once, so that the
/// parts are disjoint.
/// @throws Error (no_device) if the driver or toolkit has no green contexts (13.0 or newer needed), Error
/// (input) like groups_of_ranks().
std::shared_ptr<CudaPartition> make_cuda_partition(int gpu, int ranks, const WorldOptions& options);

struct CudaDeviceOptions {
  int rank = 0;                              ///< for messages
  std::optional<Bytes> memory;               ///< max memory in use at once; nullopt: the GPU's free memory
  std::shared_ptr<CudaPartition> partition;  ///< of the multiprocessors among ranks; null: all are shared
  AttentionOptions attention = {};
};

/// Makes a device whose streams run behind the calling thread. Buffers are freed in the order of the rank's
/// first stream, so work that reads them may still be pending; other streams wait for the first one whenever
/// memory is allocated or freed. in_use() counts the bytes that the rank's thread has requested so far. The
/// source of a copy to the device may be reused when the call returns.
///
/// Buffers, streams and events may outlive the device. When the device, its buffers and its streams
/// are all destroyed, the last destructor waits for the rank's work. Streams accept only GPU events.
std::unique_ptr<Device> make_cuda_device(std::shared_ptr<CudaGpu> gpu, const CudaDeviceOptions& options);

/// A sum on the GPU has at most this many inputs and at most this many outputs.
inline constexpr int kMaxCudaSummands = 64;

/// Runs ThreadCommunicator::add_up() on memory of the current device, in order on `stream`, a cudaStream_t.
/// The bits equal the host's, except where NaNs are added. @throws Error (internal)
void add_up_on_gpu(const HostSum& sum, std::size_t begin, std::size_t end, void* stream, int multiprocessors);

/// Returns the libraries other than CUDA's that kernels with these options use, after a comma: ", cuDNN
/// 9.19.0"; empty if there are none.
std::string attention_software(const AttentionOptions& options);

/// Makes a World whose threads meet on the host and then enqueue their work in streams that wait for each
/// other's events. A call returns when its partners have joined, not when its work is done. A send copies its
/// data and waits for nobody. Sums are taken in the group's order: f32 and f64 in their own precision, bf16
/// in f32 and rounded once. Their bits are the same in every run, and the same as on the host.
///
/// As in HostWorld, the run also ends if a receive and its send differ in size, or if ranks call different
/// collectives. With `partition`, each rank has its own multiprocessors: the same number for all ranks or, if
/// two ranks share a device, the number for their shares. Otherwise all ranks share all multiprocessors.
/// `timeout` is the max time that a rank's thread waits for another rank's thread.
/// @throws Error (no_device) without a GPU, Error (usage) for more than 64 ranks, Error (input) for a
/// partition with more ranks than parts, Error (internal) for shared devices without a partition.
std::unique_ptr<World> make_cuda_world(int ranks, const WorldOptions& options = {});

}  // namespace dflop
