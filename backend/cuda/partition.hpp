// Multiprocessors of one GPU are dealt out to ranks (CUDA's green contexts), so that ranks do not take
// compute from each other; caches and memory bandwidth stay shared. The header needs no CUDA.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace dflop {

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

/// A CudaPartition has the parts of one GPU, one for each rank.
class CudaPartition {
 public:
  virtual ~CudaPartition() = default;
  virtual int multiprocessors_of_a_rank() const = 0;
  /// Returns a cudaStream_t, which the partition has to outlive.
  virtual void* make_stream(int rank) = 0;
};

/// Makes parts of one size. It is there in builds with CUDA only.
/// @throws Error (no_device) where driver or toolkit have no green contexts (13.0 or newer have), Error
/// (input) as groups_of_a_rank().
std::shared_ptr<CudaPartition> make_cuda_partition(int gpu, int ranks);

}  // namespace dflop
