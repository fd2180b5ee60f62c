// Tests the header-only parts of the cuda wing, which need neither a GPU nor CUDA.
#include <gtest/gtest.h>

#include <deque>

#include "backend/cuda/ring_places.hpp"
#include "backend/cuda/world.hpp"
#include "core/support/random.hpp"

namespace dflop {
namespace cuda_headers_test {

using Place = std::optional<std::size_t>;

/// A ring of four units of 256 bytes.
TEST(RingPlaces, WrapAround) {
  RingPlaces ring(1024);
  EXPECT_EQ(ring.take(300), Place(0));      // two units
  EXPECT_EQ(ring.take(256), Place(512));    // one
  EXPECT_EQ(ring.take(512), std::nullopt);  // one is left
  ring.give_back_oldest();
  EXPECT_EQ(ring.take(512), Place(0));  // not at the end, where only one is left
  EXPECT_EQ(ring.take(1), std::nullopt);
  ring.give_back_oldest();
  EXPECT_EQ(ring.take(1), Place(512));
  ring.give_back_oldest();
  ring.give_back_oldest();
  EXPECT_EQ(ring.taken(), 0U);
  EXPECT_EQ(ring.take(1024), Place(0));  // all of it
  EXPECT_EQ(ring.take(1), std::nullopt);
}

TEST(RingPlaces, UseTheWholeRing) {
  RingPlaces ring(1024);
  EXPECT_EQ(ring.take(512), Place(0));
  EXPECT_EQ(ring.take(256), Place(512));
  ring.give_back_oldest();
  EXPECT_EQ(ring.take(256), Place(768));  // exactly the rest of the ring
  EXPECT_EQ(ring.take(512), Place(0));
}

TEST(RingPlaces, NothingLargerThanTheRingHasAPlace) {
  RingPlaces ring(1024);
  EXPECT_EQ(ring.take(1025), std::nullopt);
}

/// Places that are in use at the same time lie in the ring and do not overlap, and an empty ring can be taken
/// as a whole.
TEST(RingPlaces, DoNotOverlap) {
  constexpr std::size_t kCapacity = 16 * RingPlaces::kAlignment;
  struct Taken {
    std::size_t begin;
    std::size_t end;
  };
  Random random(3);
  RingPlaces ring(kCapacity);
  std::deque<Taken> taken;
  std::size_t found = 0;
  for (int step = 0; step < 20000; ++step) {
    if (!taken.empty() && random.below(2) == 0) {
      ring.give_back_oldest();
      taken.pop_front();
      continue;
    }
    const std::size_t bytes = 1 + random.below(random.below(4) == 0 ? kCapacity : 800);
    const Place place = ring.take(bytes);
    if (!place) {
      ASSERT_FALSE(taken.empty()) << bytes;
      continue;
    }
    ++found;
    ASSERT_EQ(*place % RingPlaces::kAlignment, 0U);
    ASSERT_LE(*place + bytes, kCapacity);
    for (const Taken& other : taken) ASSERT_TRUE(*place >= other.end || *place + bytes <= other.begin);
    taken.push_back({*place, *place + bytes});
    ASSERT_EQ(ring.taken(), taken.size());
  }
  EXPECT_GT(found, 5000U);
}

/// 132 multiprocessors are 16 groups of 8, and 4 are in no group. Three ranks get five groups each, and one
/// is left over.
TEST(PartitionGroups, AreEven) {
  EXPECT_EQ(groups_of_a_rank(1, 16), 16);
  EXPECT_EQ(groups_of_a_rank(3, 16), 5);
  EXPECT_EQ(groups_of_a_rank(16, 16), 1);
  EXPECT_THROW(groups_of_a_rank(17, 16), Error);
}

/// A share of 0.3 of 16 groups is 4.8, rounded to five groups or 40 multiprocessors. On two devices of eight
/// groups it is 2.4, rounded to two. The second rank of a device starts where the first ends.
TEST(PartitionGroups, FollowTheShares) {
  using Ranges = std::vector<GroupRange>;
  EXPECT_EQ(groups_of_ranks(2, 1, 0.3, 16), (Ranges{{0, 5}, {5, 11}}));
  EXPECT_EQ(groups_of_ranks(4, 2, 0.3, 16), (Ranges{{0, 2}, {8, 2}, {2, 6}, {10, 6}}));
  EXPECT_EQ(groups_of_ranks(3, 0, 0, 16), (Ranges{{0, 5}, {5, 5}, {10, 5}}));
}

/// Each rank has at least one group, whatever the share.
TEST(PartitionGroups, GiveEachRankAtLeastOne) {
  using Ranges = std::vector<GroupRange>;
  EXPECT_EQ(groups_of_ranks(2, 1, 0.001, 16), (Ranges{{0, 1}, {1, 15}}));
  EXPECT_EQ(groups_of_ranks(2, 1, 0.999, 16), (Ranges{{0, 15}, {15, 1}}));
  EXPECT_EQ(groups_of_ranks(2, 1, 0.9, 2), (Ranges{{0, 1}, {1, 1}}));
  EXPECT_THROW(groups_of_ranks(2, 1, 0.5, 1), Error);
  EXPECT_THROW(groups_of_ranks(18, 9, 0.5, 16), Error);
}

/// No two ranks share a group, and the two ranks of a device have all of its groups.
TEST(PartitionGroups, AreDisjoint) {
  Random random(4);
  for (int round = 0; round < 2000; ++round) {
    const int devices = 1 + static_cast<int>(random.below(4));
    const int groups = 2 * devices + static_cast<int>(random.below(20));
    const double share = 0.001 + 0.998 * random.uniform();
    std::vector<int> owners(static_cast<std::size_t>(groups), 0);
    for (const GroupRange& range : groups_of_ranks(2 * devices, devices, share, groups)) {
      ASSERT_GE(range.count, 1);
      for (int g = range.first; g < range.first + range.count; ++g) ++owners.at(static_cast<std::size_t>(g));
    }
    for (int g = 0; g < groups; ++g) {
      ASSERT_EQ(owners[static_cast<std::size_t>(g)], g < groups / devices * devices ? 1 : 0) << share;
    }
  }
}

}  // namespace cuda_headers_test
}  // namespace dflop
