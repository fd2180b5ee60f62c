#include <string>

#include "backend/cuda/partition.hpp"
#include "core/error.hpp"

namespace dflop {

int groups_of_a_rank(int ranks, int groups) {
  if (ranks <= groups) return groups / ranks;
  throw Error(ErrorKind::input, "a partition for " + std::to_string(ranks) +
                                    " ranks, and the GPU has multiprocessors in " + std::to_string(groups) +
                                    " groups, which are not divided");
}

}  // namespace dflop
