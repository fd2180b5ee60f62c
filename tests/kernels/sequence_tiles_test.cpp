#include "kernels/sequence_tiles.hpp"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "tests/kernels/values.hpp"

namespace dflop::testing {
namespace sequence_tiles_test {

/// Offsets of up to 8 sequences of up to 300 rows, some of them empty.
Ints random_offsets(Random& random) {
  Ints offsets = {0};
  const auto sequences = 1 + random.below(8);
  for (std::uint64_t i = 0; i < sequences; ++i) {
    const auto length = random.below(4) == 0 ? 0 : random.below(300);
    offsets.push_back(offsets.back() + static_cast<std::int32_t>(length));
  }
  return offsets;
}

/// Every tile of every sequence has exactly one number, and the remaining numbers have no tile.
TEST(SequenceTiles, CoverEverySequenceOnce) {
  Random random(5);
  for (int trial = 0; trial < 400; ++trial) {
    const Ints offsets = random_offsets(random);
    const auto sequences = static_cast<int>(offsets.size()) - 1;
    const int tile_rows = 1 << random.below(8);
    const bool last_first = random.below(2) == 1;
    std::multiset<std::tuple<std::int64_t, int, int>> expected;  // begin, length, first
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
      const int length = offsets[i + 1] - offsets[i];
      for (int first = 0; first < length; first += tile_rows) expected.emplace(offsets[i], length, first);
    }
    std::multiset<std::tuple<std::int64_t, int, int>> found;
    for (std::int64_t number = 0; number < tile_numbers(offsets.back(), sequences, tile_rows); ++number) {
      const SequenceTile tile = find_tile(offsets.data(), sequences, number, tile_rows, last_first);
      if (tile.first < tile.length) found.emplace(tile.begin, tile.length, tile.first);
    }
    ASSERT_TRUE(found == expected) << "trial " << trial << ": " << found.size() << " tiles of " << tile_rows
                                   << " rows, expected " << expected.size();
  }
}

/// 100 rows in tiles of 32: tiles start at 0, 32, 64 and 96.
TEST(SequenceTiles, CanComeFromTheEnd) {
  const Ints offsets = {0, 100};
  ASSERT_EQ(tile_numbers(100, 1, 32), 4);
  Ints firsts;
  for (int number = 0; number < 4; ++number) {
    firsts.push_back(find_tile(offsets.data(), 1, number, 32, true).first);
  }
  EXPECT_EQ(firsts, (Ints{96, 64, 32, 0}));
}

}  // namespace sequence_tiles_test
}  // namespace dflop::testing
