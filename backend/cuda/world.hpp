// Ranks that share one GPU are threads, each with streams and an account of memory of its own. The header
// needs no CUDA; what it declares is there only in builds with it.
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

/// This ends the device's name in a World of ranks that have a part each.
inline constexpr std::string_view kPartitionName = " multiprocessors a rank";

/// Returns how many of a GPU's groups of multiprocessors each of `ranks` gets: as many as the others.
/// @throws Error (input) for more ranks than groups
inline int groups_of_a_rank(int ranks, int groups) {
  if (ranks <= groups) return groups / ranks;
  throw Error(ErrorKind::input, "a partition for " + std::to_string(ranks) +
                                    " ranks, and the GPU has multiprocessors in " + std::to_string(groups) +
                                    " groups, which are not divided");
}

/// A GroupRange are groups of multiprocessors that follow each other.
struct GroupRange {
  int first = 0;
  int count = 1;
  bool operator==(const GroupRange&) const = default;
};

/// Returns the groups of each rank, none of which is two ranks'. Ranks that have a device each get as many as
/// the others. Where the second half of the ranks is on the devices of the first, each device is as many
/// groups as the others are, of which the first rank gets what encoder_quanta() makes of `first_share`, and
/// the second the rest. Groups that are left over are nobody's.
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

/// A CudaPartition deals the multiprocessors of one GPU out to ranks (CUDA's green contexts), so that they do
/// not take compute from each other; caches and memory bandwidth stay shared.
class CudaPartition {
 public:
  virtual ~CudaPartition() = default;
  virtual int multiprocessors_of(int rank) const = 0;
  virtual int groups() const = 0;  ///< of the GPU, in which multiprocessors are given
  /// Returns a cudaStream_t, which the partition has to outlive.
  virtual void* make_stream(int rank) = 0;
};

/// Makes the parts of groups_of_ranks(), all of one split of the GPU, which keeps them disjoint.
/// @throws Error (no_device) where driver or toolkit have no green contexts (13.0 or newer have), Error
/// (input) as groups_of_ranks().
std::shared_ptr<CudaPartition> make_cuda_partition(int gpu, int ranks, const WorldOptions& options);

struct CudaDeviceOptions {
  int rank = 0;                 ///< for messages
  std::optional<Bytes> memory;  ///< the most that may be in use at once; none: what the GPU has left
  std::shared_ptr<CudaPartition> partition;  ///< of the multiprocessors, by rank; none: all are shared
  AttentionOptions attention = {};
};

/// Makes a device whose streams run behind the calling thread. Buffers are given back in the order of the
/// rank's first stream, so that what reads them may still be on its way; further streams wait for that one
/// wherever memory is taken or given back. Bytes in use are those that were asked for, as the rank's thread
/// has come to them. What is copied to the device may be used again when the call returns.
///
/// Buffers, streams and events may outlive the device; the last of it, its buffers and its streams waits for
/// the rank's work. Streams take events of GPUs only.
std::unique_ptr<Device> make_cuda_device(std::shared_ptr<CudaGpu> gpu, const CudaDeviceOptions& options);

/// A sum has at most so many inputs and outputs.
inline constexpr int kMostCudaSummands = 64;

/// Does ThreadCommunicator::add_up() for memory of the current device, in order on `stream`, a cudaStream_t,
/// with the bits of the host but where NaN meet. @throws Error (internal)
void add_up_on_gpu(const HostSum& sum, std::size_t begin, std::size_t end, void* stream, int multiprocessors);

/// Returns the libraries, other than CUDA's, that kernels with these options compute with, after a comma: ",
/// cuDNN 9.19.0"; empty for none.
std::string attention_software(const AttentionOptions& options);

/// Makes a World whose threads meet on the host and then enter their work into their streams, which wait for
/// each other's events: a call returns when its partners have come to it, not when its work is done. A send
/// copies the data into memory of its own and waits for nobody. Sums are taken in the group's order, f32 and
/// f64 in their own precision, bf16 in f32 and rounded once, and so have the same bits in every run, those of
/// the host.
///
/// Beside what Communicator says, a receive with other bytes than were sent, and collectives that differ, end
/// the run as on the host (HostWorld).
/// With `partition` each rank has equally many multiprocessors, or two ranks of a shared device their shares,
/// on which no other computes; else they share all of them. `timeout` says how long a rank's thread waits for
/// another's.
/// @throws Error (no_device) without a GPU, Error (usage) for more than 64 ranks, Error (input) for a
/// partition with more ranks than parts, Error (internal) for shared devices without a partition.
std::unique_ptr<World> make_cuda_world(int ranks, const WorldOptions& options = {});

}  // namespace dflop
