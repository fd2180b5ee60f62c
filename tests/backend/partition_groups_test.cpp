#include <gtest/gtest.h>

#include "backend/cuda/partition.hpp"
#include "core/error.hpp"

namespace dflop {
namespace {

/// 132 multiprocessors are 16 groups of 8 and 4 that are in none. Three ranks: five groups each, and one is
/// left over.
TEST(PartitionGroups, AreEven) {
  EXPECT_EQ(groups_of_a_rank(1, 16), 16);
  EXPECT_EQ(groups_of_a_rank(3, 16), 5);
  EXPECT_EQ(groups_of_a_rank(16, 16), 1);
  EXPECT_THROW(groups_of_a_rank(17, 16), Error);
}

}  // namespace
}  // namespace dflop
