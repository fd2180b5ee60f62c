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

/// Three ranks on 16 groups: five each, and one is left over.
TEST(PartitionGroups, AreEven) {
  EXPECT_EQ(even_groups(3, 16), (Groups{5, 5, 5}));
  EXPECT_EQ(even_groups(16, 16), Groups(16, 1));
  EXPECT_THROW(even_groups(17, 16), Error);
}

}  // namespace
}  // namespace dflop
