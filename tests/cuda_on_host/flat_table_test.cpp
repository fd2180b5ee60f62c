// Tests the table that caches plans of products. It needs no device.
#include "kernels/cuda/flat_table.hpp"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/support/random.hpp"

namespace dflop::testing {
namespace flat_table_test {

using cuda::FlatTable;
using cuda::PackedKey;

/// Compares the table with a map. Keys have few different words, so that they repeat and often share a word.
TEST(FlatTable, FindsTheValueOfEachKey) {
  Random random(5);
  FlatTable<int> table;
  std::map<std::pair<std::uint64_t, std::uint64_t>, int*> made;
  for (int i = 0; i < 5'000; ++i) {
    const PackedKey key{random.below(40) << 32U, 1 + random.below(40)};
    const auto known = made.find({key.low, key.high});
    bool asked = false;
    int& value = table.get(key, [&] {
      asked = true;
      return std::make_unique<int>(i);
    });
    EXPECT_EQ(asked, known == made.end());
    if (known == made.end()) {
      EXPECT_EQ(value, i);
      made[{key.low, key.high}] = &value;
    } else {
      EXPECT_EQ(&value, known->second) << "it stays where it is";
    }
    ASSERT_EQ(table.size(), made.size());
  }
  EXPECT_GT(made.size(), 1'000U);
}

TEST(FlatTable, KeepsNothingIfMakingAValueFails) {
  FlatTable<int> table;
  const auto fail = []() -> std::unique_ptr<int> { throw 1; };
  EXPECT_THROW(table.get({1, 0}, fail), int);
  EXPECT_EQ(table.size(), 0U);
  EXPECT_EQ(table.get({1, 0}, [] { return std::make_unique<int>(7); }), 7);
}

}  // namespace flat_table_test
}  // namespace dflop::testing
