// The sequence lists for cuDNN's attention.
#include "kernels/cuda/sequence_lists.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace dflop::testing {
namespace sequence_lists_test {

/// Three sequences with 3, 0 and 4 rows, padded with two empty ones. Starts are offsets times a width; those
/// of the padding stay at the end.
TEST(SequenceLists, HaveStartsOfThreeWidthsAndLengths) {
  const std::vector<std::int32_t> offsets = {0, 3, 3, 7};
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(cuda::SequenceLists::numbers(5)), -1);
  ASSERT_EQ(numbers.size(), 3U * 6U + 5U);
  cuda::fill_sequence_lists({}, "test", {numbers.data(), 5}, offsets.data(), 3, {10, 2, 1});
  const std::vector<std::int32_t> expected = {0, 30, 30, 70, 70, 70,  //
                                              0, 6,  6,  14, 14, 14,  //
                                              0, 3,  3,  7,  7,  7,   //
                                              3, 0,  4,  0,  0};
  EXPECT_EQ(numbers, expected);
}

}  // namespace sequence_lists_test
}  // namespace dflop::testing
