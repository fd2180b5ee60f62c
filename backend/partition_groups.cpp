#include <numeric>
#include <string>

#include "backend/cuda_partition.hpp"
#include "core/error.hpp"

namespace dflop {

std::vector<int> groups_of_ranks(const std::vector<int>& wanted, int group_size, int groups) {
  std::vector<int> all;
  for (std::size_t rank = 0; rank < wanted.size(); ++rank) {
    if (wanted[rank] < 1) {
      throw Error(ErrorKind::input, "a partition gives rank " + std::to_string(rank) + " " +
                                        std::to_string(wanted[rank]) + " multiprocessors; expected some");
    }
    all.push_back((wanted[rank] + group_size - 1) / group_size);
  }
  const int sum = std::accumulate(all.begin(), all.end(), 0);
  if (sum > groups) {
    throw Error(ErrorKind::input, "a partition takes " + std::to_string(sum * group_size) +
                                      " multiprocessors in groups of " + std::to_string(group_size) +
                                      "; the GPU has " + std::to_string(groups * group_size) + " in groups");
  }
  return all;
}

std::vector<int> even_groups(int ranks, int groups) {
  if (ranks > groups) {
    throw Error(ErrorKind::input, "a partition for " + std::to_string(ranks) +
                                      " ranks, and the GPU has multiprocessors in " + std::to_string(groups) +
                                      " groups, which are not divided");
  }
  return std::vector<int>(static_cast<std::size_t>(ranks), groups / ranks);
}

}  // namespace dflop
