// make_cuda_world() makes a World whose ranks share one GPU. Each rank is a thread with its own streams and
// memory account. This header compiles without CUDA, but most of its functions exist only in builds with
// CUDA.
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

/// Returns the number of groups of multiprocessors that each rank gets if a GPU's `groups` are divided
/// equally among `ranks`.
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

/// Returns the groups of multiprocessors of each rank; ranks do not share groups. If `shared_devices` is 0,
/// all ranks get the same number of groups. Otherwise each of the `shared_devices` devices gets the same
/// number of groups, and two ranks share a device: rank r and rank r + shared_devices. Of the device's
/// groups, the first rank gets the number that encoder_quanta() returns for `first_share`, and the second
/// rank gets the rest. Leftover groups are unused.
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

/// Partitions a GPU as groups_of_ranks() says. All parts come from a single split of the GPU, so that they
/// are disjoint.
/// @throws Error (no_device) if the driver or toolkit has no green contexts (13.0 or newer needed); Error
/// (input) if there are more ranks than groups
std::shared_ptr<CudaPartition> make_cuda_partition(int gpu, int ranks, const WorldOptions& options);

struct CudaDeviceOptions {
  int rank = 0;                              ///< for messages
  std::optional<Bytes> memory;               ///< the max in use at once; none: the GPU's free memory
  std::shared_ptr<CudaPartition> partition;  ///< multiprocessors of each rank; null: all are shared
  AttentionOptions attention = {};
};

/// Makes a device whose calls only enqueue work: streams run it later. Freeing a buffer is enqueued in the
/// rank's first stream, so a buffer may be destroyed while work that reads it is still pending. Whenever
/// memory is allocated or freed, the rank's other streams wait for the first one. in_use() counts requested
/// bytes, at the point that the rank's thread has reached. The source of a copy to the device may be reused
/// when the call returns.
///
/// Buffers, streams and events may outlive the device. The last of the device, its buffers and its streams
/// waits in its destructor for the rank's work. Streams accept only GPU events.
std::unique_ptr<Device> make_cuda_device(std::shared_ptr<CudaGpu> gpu, const CudaDeviceOptions& options);

/// On a GPU, a HostSum has at most this many inputs and at most this many outputs.
inline constexpr int kMaxCudaSummands = 64;

/// Does what ThreadCommunicator::add_up() says on memory of the current device, by work in `stream`, a
/// cudaStream_t. Results are bit-identical to the host's, except if NaNs are added. @throws Error (internal)
void add_up_on_gpu(const HostSum& sum, std::size_t begin, std::size_t end, void* stream, int multiprocessors);

/// Returns the libraries that kernels with these options use in addition to CUDA's, as text to append: ",
/// cuDNN 9.19.0"; empty if there are none.
std::string attention_software(const AttentionOptions& options);

/// Makes a World whose ranks are threads. In a receive or collective, the threads meet on the host and then
/// enqueue work in their streams, which wait for each other's events. A call returns when all partners have
/// joined, not when its work is done. A send copies its data and does not wait for the receiver. Sums add
/// the ranks' data in the group's order: f32 and f64 in their own precision, bf16 in f32 and rounded once.
/// Their results are bit-identical in every run, and to those on the host.
///
/// As in HostWorld, the run also ends if the sizes of a receive and its send differ, or if the ranks of a
/// group enter different collectives. With `partition`, ranks have their own multiprocessors: the same
/// number each or, if two ranks share a device, their shares of it. Otherwise all ranks share all
/// multiprocessors. `timeout` is the max time that a rank's thread waits for another thread.
/// @throws Error (no_device) if there is no GPU; Error (usage) for more than 64 ranks; Error (input) for a
/// partition with more ranks than groups of multiprocessors; Error (internal) for shared devices without a
/// partition
std::unique_ptr<World> make_cuda_world(int ranks, const WorldOptions& options = {});

}  // namespace dflop
