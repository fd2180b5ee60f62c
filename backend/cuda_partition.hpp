// Multiprocessors of one GPU dealt out to ranks (CUDA's green contexts), so that ranks do not take compute
// from each other; caches and memory bandwidth stay shared. The header needs no CUDA.
#pragma once

#include <memory>
#include <vector>

namespace dflop {

/// How many of a GPU's groups of multiprocessors each rank gets: `wanted` multiprocessors by rank, rounded up
/// to whole groups of `group_size`.
/// @throws Error (input) for a rank that gets none, or where they are more than `groups` in all.
std::vector<int> groups_of_ranks(const std::vector<int>& wanted, int group_size, int groups);

/// As many groups for each of `ranks`, and as many as there are.
/// @throws Error (input) for more ranks than groups
std::vector<int> even_groups(int ranks, int groups);

class CudaPartition {
 public:
  virtual ~CudaPartition() = default;
  virtual int multiprocessors(int rank) const = 0;
  /// A cudaStream_t, which the partition has to outlive.
  virtual void* make_stream(int rank) = 0;
};

/// In builds with CUDA only. `wanted` by rank; more may be given, as whole groups are.
/// @throws Error (no_device) where driver or toolkit have no green contexts (13.0 or newer have), Error
/// (input) as groups_of_ranks().
std::shared_ptr<CudaPartition> make_cuda_partition(int gpu, const std::vector<int>& wanted);
/// In parts of one size, as even_groups().
std::shared_ptr<CudaPartition> make_even_cuda_partition(int gpu, int ranks);

}  // namespace dflop
