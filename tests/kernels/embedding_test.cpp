#include <gtest/gtest.h>

#include "tests/kernels/values.hpp"

namespace dflop::testing {
namespace embedding_test {

// The rank holds classes 10, 11 and 12.
TEST(Embedding, GivesTheRanksRowsAndZerosForOthers) {
  const Reals table(3, 2, {1.0, 2.0, 3.0, 4.0, 5.0, 6.0});
  const Ints ids = {12, 9, 10, 12, 13};
  Reals y(5, 2, 9.0);
  host<double>()->embedding(y, table, indices(ids), 10);
  EXPECT_EQ(y.data, (std::vector<double>{5, 6, 0, 0, 1, 2, 5, 6, 0, 0}));
}

// Class 12 occurs twice: 6 + 1 + 7 and 6 + 2 + 8, starting from 6.
TEST(Embedding, BackwardAddsEachRowToItsClass) {
  const Reals dy(5, 2, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  const Ints ids = {12, 9, 10, 12, 13};
  Reals dtable(3, 2, 6.0);
  host<double>()->embedding_backward(dtable, dy, indices(ids), 10);
  EXPECT_EQ(dtable.data, (std::vector<double>{11, 12, 6, 6, 14, 16}));
}

TEST(Embedding, SumOverPartsOfTheVocabularyIsTheWhole) {
  const auto kernels = host<double>();
  Random random(43);
  for (const int n : {0, 1, 30}) {
    const Reals table = random_values(random, 11, 5);
    const Reals dy = random_values(random, n, 5);
    const Ints ids = random_ints(random, n, 11);
    Reals whole(n, 5);
    kernels->embedding(whole, table, indices(ids), 0);
    Reals sum(n, 5);
    for (const auto& [first, count] : {std::pair(0, 4), std::pair(4, 6), std::pair(10, 1)}) {
      Reals part(n, 5);
      kernels->embedding(part, rows_of(table, first, count), indices(ids), first);
      kernels->add(sum, part);
    }
    EXPECT_EQ(sum.data, whole.data);

    // The operation is linear in the table, so the gradient is its transpose: <table, dtable> = <y, dy>.
    Reals dtable(11, 5);
    kernels->embedding_backward(dtable, dy, indices(ids), 0);
    EXPECT_NEAR(inner(table, dtable), inner(whole, dy), 1e-11);
  }
}

}  // namespace embedding_test
}  // namespace dflop::testing
