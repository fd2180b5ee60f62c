#include <gtest/gtest.h>

#include "backend/cuda_partition.hpp"
#include "core/error.hpp"

namespace dflop {
namespace {

using Groups = std::vector<int>;

/// 132 multiprocessors are 16 groups of 8 and 4 that are in none.
TEST(PartitionGroups, AreWhole) {
  EXPECT_EQ(groups_of_ranks({8, 120}, 8, 16), (Groups{1, 15}));
  EXPECT_EQ(groups_of_ranks({1, 9, 17}, 8, 16), (Groups{1, 2, 3}));
  EXPECT_EQ(groups_of_ranks({}, 8, 16), Groups{});
}

TEST(PartitionGroups, RefuseMoreThanThereAre) {
  EXPECT_NO_THROW(groups_of_ranks({64, 64}, 8, 16));
  EXPECT_THROW(groups_of_ranks({64, 65}, 8, 16), Error);
  EXPECT_THROW(groups_of_ranks({8, 0}, 8, 16), Error);
}

}  // namespace
}  // namespace dflop
