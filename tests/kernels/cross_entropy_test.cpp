#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "tests/kernels/values.hpp"

namespace dflop::testing {
namespace cross_entropy_test {

struct Result {
  double loss = 0.0;
  Reals gradient;
};

/// Computes as a group of ranks does, rank r with the columns [cuts[r], cuts[r + 1]). All ranks have the same
/// loss.
Result cross_entropy(const Reals& logits, const Ints& targets, const Ints& cuts, double weight,
                     double start = 0.0) {
  const auto kernels = host<double>();
  const auto ranks = std::ssize(cuts) - 1;
  Reals parts(0, 3);
  for (std::int64_t r = 0; r < ranks; ++r) {
    const std::int32_t first = cuts[static_cast<std::size_t>(r)];
    Reals own(logits.rows, 3, 9.0);
    kernels->cross_entropy_parts(own,
                                 columns_of(logits, first, cuts[static_cast<std::size_t>(r) + 1] - first),
                                 indices(targets), first);
    parts.data.insert(parts.data.end(), own.data.begin(), own.data.end());
    parts.rows += own.rows;
  }
  Reals merged(logits.rows, 3, 9.0);
  kernels->cross_entropy_merge(merged, parts, static_cast<int>(ranks));
  Result result{0.0, Reals(logits.rows, logits.columns)};
  for (std::int64_t r = 0; r < ranks; ++r) {
    const std::int32_t first = cuts[static_cast<std::size_t>(r)];
    Reals own = columns_of(logits, first, cuts[static_cast<std::size_t>(r) + 1] - first);
    Reals loss(1, 1, start);
    kernels->cross_entropy_backward(own, loss, merged, indices(targets), first, weight);
    if (r > 0) {
      EXPECT_EQ(loss(0, 0), result.loss);
    }
    result.loss = loss(0, 0);
    for (std::int64_t i = 0; i < own.rows; ++i) {
      for (std::int64_t c = 0; c < own.columns; ++c) result.gradient(i, first + c) = own(i, c);
    }
  }
  return result;
}

double naive_loss(const Reals& logits, const Ints& targets, double weight) {
  double loss = 0.0;
  for (std::int64_t r = 0; r < logits.rows; ++r) {
    double sum = 0.0;
    for (std::int64_t c = 0; c < logits.columns; ++c) sum += std::exp(logits(r, c));
    loss += weight * (std::log(sum) - logits(r, targets[static_cast<std::size_t>(r)]));
  }
  return loss;
}

// Logits 0 and ln 3: exponentials 1 and 3, probabilities 1/4 and 3/4. With target 0 and weight 2, the loss is
// 2 ln 4, added to 5, and the gradients are 2 (1/4 - 1) and 2 * 3/4. In the parts, the largest is ln 3 and
// the sum 1/3 + 1.
TEST(CrossEntropy, OfTwoClasses) {
  const Reals logits(1, 2, {0.0, std::log(3.0)});
  Reals parts(1, 3);
  const Ints targets = {0};
  host<double>()->cross_entropy_parts(parts, logits, indices(targets), 0);
  expect_close(parts, Reals(1, 3, {std::log(3.0), 4.0 / 3.0, 0.0}), kExact);
  const Result result = cross_entropy(logits, targets, {0, 2}, 2.0, 5.0);
  EXPECT_NEAR(result.loss, 5.0 + 2.0 * std::log(4.0), kExact);
  expect_close(result.gradient, Reals(1, 2, {-1.5, 1.5}), kExact);
}

TEST(CrossEntropy, PartsGiveTheTargetsLogitToItsRankOnly) {
  const Reals logits(3, 2, {1, 2, 3, 4, 5, 6});  // classes 7 and 8
  const Ints targets = {8, 6, 9};
  Reals parts(3, 3);
  host<double>()->cross_entropy_parts(parts, logits, indices(targets), 7);
  EXPECT_EQ(columns_of(parts, 2, 1).data, (std::vector<double>{2, 0, 0}));
}

TEST(CrossEntropy, OfPartsOfTheVocabularyEqualsTheWhole) {
  Random random(47);
  for (const int n : {0, 1, 12}) {
    Reals logits = random_values(random, n, 13, 8.0);
    const Ints targets = random_ints(random, n, 13);
    const double weight = 0.25 + random.uniform();
    const auto loss = [&] { return naive_loss(logits, targets, weight); };
    const Reals gradient = numeric_gradient(logits, loss);
    for (const Ints& cuts : {Ints{0, 13}, Ints{0, 1, 13}, Ints{0, 6, 7, 13}}) {
      const Result result = cross_entropy(logits, targets, cuts, weight);
      EXPECT_NEAR(result.loss, loss(), 1e-11);
      expect_close(result.gradient, gradient, kGradient);
    }
  }
}

// Rows 1 and 3 have no target. The loss and the gradients of rows 0 and 2 are the same as without them, and
// their own gradients are zero.
TEST(CrossEntropy, ARowWithoutTargetIsNotTrained) {
  Random random(59);
  const Reals logits = random_values(random, 4, 6, 4.0);
  Reals trained(2, 6);
  for (std::int64_t c = 0; c < 6; ++c) {
    trained(0, c) = logits(0, c);
    trained(1, c) = logits(2, c);
  }
  for (const Ints& cuts : {Ints{0, 6}, Ints{0, 2, 6}}) {
    const Result expected = cross_entropy(trained, {4, 0}, cuts, 0.5);
    const Result found = cross_entropy(logits, {4, -1, 0, -1}, cuts, 0.5);
    EXPECT_NEAR(found.loss, expected.loss, kExact);
    for (std::int64_t c = 0; c < 6; ++c) {
      EXPECT_NEAR(found.gradient(0, c), expected.gradient(0, c), kExact);
      EXPECT_NEAR(found.gradient(2, c), expected.gradient(1, c), kExact);
      EXPECT_EQ(found.gradient(1, c), 0.0);
      EXPECT_EQ(found.gradient(3, c), 0.0);
    }
  }
}

// Adding a number to all logits changes nothing, even one whose exponential overflows.
TEST(CrossEntropy, LargeLogitsDoNotOverflow) {
  Random random(53);
  Reals logits = random_values(random, 4, 6);
  const Ints targets = random_ints(random, 4, 6);
  const Result small = cross_entropy(logits, targets, {0, 2, 6}, 1.0);
  for (double& x : logits.data) x += 4096.0;
  const Result large = cross_entropy(logits, targets, {0, 2, 6}, 1.0);
  EXPECT_NEAR(large.loss, small.loss, 1e-9);
  expect_close(large.gradient, small.gradient, 1e-9);
}

// The loss must show a diverged training, whichever lane of a vector the logit is in.
template <typename T>
void expect_loss_is_no_number(int column) {
  const auto kernels = host<T>();
  const Ints targets = {3};
  Values<T> logits(1, 19);
  logits(0, column) = std::numeric_limits<T>::quiet_NaN();
  Values<T> parts(2, 3), merged(1, 3), loss(1, 1);
  for (const int rank : {0, 1}) {
    Values<T> own(1, 3);
    const int first = rank * 8;
    kernels->cross_entropy_parts(own, columns_of(logits, first, rank == 0 ? 8 : 11), indices(targets), first);
    for (int c = 0; c < 3; ++c) parts(rank, c) = own(0, c);
  }
  kernels->cross_entropy_merge(merged, parts, 2);
  kernels->cross_entropy_backward(logits, loss, merged, indices(targets), 0, 1.0);
  EXPECT_TRUE(std::isnan(loss(0, 0))) << column;
}

TEST(CrossEntropy, ALogitThatIsNoNumberMakesTheLossNoNumber) {
  for (int column = 0; column < 19; ++column) {
    expect_loss_is_no_number<float>(column);
    expect_loss_is_no_number<double>(column);
  }
}

/// Row 1 has no target. The loss and the gradients of the other rows are the same as without it, and its own
/// gradients are zero.
TEST(CrossEntropy, RowsWithoutTargetAreNotTrained) {
  Reals logits(3, 4);
  for (std::int64_t i = 0; i < 12; ++i) logits(i / 4, i % 4) = 0.3 * static_cast<double>(i % 5) - 0.2;
  Reals others(2, 4);
  for (std::int64_t c = 0; c < 4; ++c) {
    others(0, c) = logits(0, c);
    others(1, c) = logits(2, c);
  }
  const Result all = cross_entropy(logits, {2, -1, 3}, {0, 2, 4}, 0.5);
  const Result expected = cross_entropy(others, {2, 3}, {0, 2, 4}, 0.5);
  EXPECT_DOUBLE_EQ(all.loss, expected.loss);
  for (std::int64_t c = 0; c < 4; ++c) {
    EXPECT_EQ(all.gradient(0, c), expected.gradient(0, c));
    EXPECT_EQ(all.gradient(1, c), 0);
    EXPECT_EQ(all.gradient(2, c), expected.gradient(1, c));
  }
}

}  // namespace cross_entropy_test
}  // namespace dflop::testing
