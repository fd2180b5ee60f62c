#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "tests/kernels/values.hpp"

namespace dflop::testing {
namespace attention_test {

/// The shape of the heads and the sequence lengths.
struct Case {
  AttentionShape shape;
  Ints lengths;

  std::int64_t rows() const { return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}); }
  Ints offsets() const {
    Ints sums = {0};
    for (const std::int32_t length : lengths) sums.push_back(sums.back() + length);
    return sums;
  }
};

struct Result {
  Reals out;
  Reals statistics;
};

Result attend(const Reals& qkv, const AttentionShape& shape, const Ints& offsets) {
  Result result{Reals(qkv.rows, shape.out_columns(), 9.0), Reals(qkv.rows, shape.heads, 9.0)};
  host<double>()->attention(result.out, result.statistics, qkv, shape, indices(offsets));
  return result;
}

/// Computes one row of one head directly by the formula.
void naive_row(Result& result, const Reals& qkv, const AttentionShape& shape, int head, std::int64_t row,
               std::int64_t first_key, std::int64_t last_key) {
  const int d = shape.head_dim;
  const int group = head / (shape.heads / shape.kv_heads);
  const int key = (shape.heads + group) * d;
  const int value = (shape.heads + shape.kv_heads + group) * d;
  std::vector<double> scores;
  for (std::int64_t k = first_key; k < last_key; ++k) {
    double score = 0.0;
    for (int i = 0; i < d; ++i) score += qkv(row, head * d + i) * qkv(k, key + i);
    scores.push_back(score / std::sqrt(d));
  }
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0.0;
  for (const double score : scores) sum += std::exp(score - largest);
  result.statistics(row, head) = largest + std::log(sum);
  for (int i = 0; i < d; ++i) {
    result.out(row, head * d + i) = 0.0;
    for (std::int64_t k = first_key; k < last_key; ++k) {
      const double weight = std::exp(scores[static_cast<std::size_t>(k - first_key)] - largest) / sum;
      result.out(row, head * d + i) += weight * qkv(k, value + i);
    }
  }
}

Result naive(const Reals& qkv, const AttentionShape& shape, const Ints& offsets) {
  Result result{Reals(qkv.rows, shape.out_columns()), Reals(qkv.rows, shape.heads)};
  for (std::size_t i = 1; i < offsets.size(); ++i) {
    for (std::int64_t row = offsets[i - 1]; row < offsets[i]; ++row) {
      for (int head = 0; head < shape.heads; ++head) {
        naive_row(result, qkv, shape, head, row, offsets[i - 1], shape.causal ? row + 1 : offsets[i]);
      }
    }
  }
  return result;
}

class Attention : public ::testing::TestWithParam<Case> {
 protected:
  const AttentionShape shape = GetParam().shape;
  const Ints offsets = GetParam().offsets();
  const std::int64_t rows = GetParam().rows();
  Random random{29};
  Reals qkv = random_values(random, rows, shape.qkv_columns(), 2.0);
};

TEST_P(Attention, IsTheSoftmaxOfScoresTimesValues) {
  const Result actual = attend(qkv, shape, offsets);
  const Result expected = naive(qkv, shape, offsets);
  expect_close(actual.out, expected.out, kExact, "out");
  expect_close(actual.statistics, expected.statistics, kExact, "statistics");
}

TEST_P(Attention, BackwardIsTheDerivative) {
  const Reals dout = random_values(random, rows, shape.out_columns());
  const Result result = attend(qkv, shape, offsets);
  Reals dqkv(rows, shape.qkv_columns(), 9.0);  // previous content is overwritten
  host<double>()->attention_backward(dqkv, dout, result.out, result.statistics, qkv, shape, indices(offsets));
  const auto loss = [&] { return inner(attend(qkv, shape, offsets).out, dout); };
  expect_close(dqkv, numeric_gradient(qkv, loss), kGradient);
}

// Blocks have 64 query rows: 64, 65 and 130 rows are one block, one block and a row, and two blocks and two
// rows.
INSTANTIATE_TEST_SUITE_P(Shapes, Attention,
                         ::testing::Values(Case{{1, 1, 3, false}, {}}, Case{{2, 1, 2, true}, {0, 0}},
                                           Case{{1, 1, 1, true}, {1}}, Case{{2, 2, 4, false}, {1}},
                                           Case{{4, 2, 3, true}, {5, 1, 0, 7}},
                                           Case{{4, 2, 3, false}, {5, 1, 0, 7}}, Case{{6, 1, 2, true}, {9}},
                                           Case{{3, 3, 5, false}, {4, 4}}, Case{{1, 1, 2, true}, {65, 2, 64}},
                                           Case{{2, 1, 1, false}, {3, 65}}, Case{{1, 1, 1, true}, {130}}));

/// The rows of sequence `i`.
Reals sequence(const Reals& x, const Ints& offsets, std::size_t i) {
  return rows_of(x, offsets[i], offsets[i + 1] - offsets[i]);
}

TEST(AttentionProperty, SequencesInAnotherOrderGiveTheSameRows) {
  Random random(31);
  for (int round = 0; round < 20; ++round) {
    const int kv_heads = 1 + static_cast<int>(random.below(2));
    const AttentionShape shape{2 * kv_heads, kv_heads, 4, round % 2 == 0};
    const Case forwards{shape, random_ints(random, 4, 80)};
    const Case backwards{shape, Ints(forwards.lengths.rbegin(), forwards.lengths.rend())};
    const Reals qkv = random_values(random, forwards.rows(), shape.qkv_columns());
    Reals turned(0, qkv.columns);
    for (std::size_t i = 4; i-- > 0;) {
      const Reals rows = sequence(qkv, forwards.offsets(), i);
      turned.data.insert(turned.data.end(), rows.data.begin(), rows.data.end());
      turned.rows += rows.rows;
    }
    const Result a = attend(qkv, shape, forwards.offsets());
    const Result b = attend(turned, shape, backwards.offsets());
    for (std::size_t i = 0; i < 4; ++i) {
      expect_close(sequence(a.out, forwards.offsets(), i), sequence(b.out, backwards.offsets(), 3 - i),
                   kExact);
    }
  }
}

TEST(AttentionProperty, CausalRowsDoNotSeeWhatComesLater) {
  const AttentionShape shape{4, 2, 4, true};
  Random random(37);
  const Reals qkv = random_values(random, 150, shape.qkv_columns());
  const Result whole = attend(qkv, shape, {0, 150});
  for (const std::int32_t length : {1, 2, 63, 64, 65, 128, 149}) {
    const Result prefix = attend(rows_of(qkv, 0, length), shape, {0, length});
    expect_close(prefix.out, rows_of(whole.out, 0, length), kExact, "out");
    expect_close(prefix.statistics, rows_of(whole.statistics, 0, length), kExact, "statistics");
  }
}

// The exponentials of scores of about 10^5 overflow in either precision. The softmax picks one key.
TEST(AttentionProperty, LargeScoresDoNotOverflow) {
  const AttentionShape shape{1, 1, 4, false};
  Random random(41);
  const Reals qkv = random_values(random, 20, shape.qkv_columns(), 500.0);
  const Result expected = naive(qkv, shape, {0, 20});
  expect_close(attend(qkv, shape, {0, 20}).out, expected.out, 1e-9);
  for (const double x : expected.out.data) EXPECT_TRUE(std::isfinite(x));
}

}  // namespace attention_test
}  // namespace dflop::testing
