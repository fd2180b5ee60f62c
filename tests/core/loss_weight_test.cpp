#include "core/program/loss_weight.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "core/error.hpp"
#include "core/support/random.hpp"

namespace dflop {
namespace loss_weight_test {

using Gradient = std::array<double, 3>;

/// One predicted token of a linear regression: loss 1/2 (w . x - y)^2.
struct Token {
  Gradient x{};
  double y = 0;
};

constexpr Gradient kParameters = {0.7, -1.3, 2.1};

Gradient gradient(const Token& token) {
  double error = -token.y;
  for (std::size_t i = 0; i < 3; ++i) error += kParameters[i] * token.x[i];
  return {error * token.x[0], error * token.x[1], error * token.x[2]};
}

void add(Gradient& sum, const Gradient& part, double weight) {
  for (std::size_t i = 0; i < 3; ++i) sum[i] += weight * part[i];
}

using ToySample = std::vector<Token>;

/// Up to 40 tokens, sometimes none; far from the line of the parameters, so that gradients do not cancel.
std::vector<ToySample> random_samples(Random& random, int count) {
  std::vector<ToySample> samples(count);
  for (ToySample& sample : samples) {
    sample.resize(random.below(5) == 0 ? 0 : random.below(41));
    for (Token& token : sample) {
      for (double& x : token.x) x = 1 + random.uniform();
      token.y = 50 + random.uniform();
    }
  }
  return samples;
}

/// Puts a sample in every bin. Otherwise the bins are random and unequal.
Assignment random_bins(Random& random, std::size_t samples, int microbatches, int dp) {
  Assignment assignment{microbatches, dp, {}};
  const int bins = microbatches * dp;
  for (std::size_t i = 0; i < samples; ++i) {
    const bool skewed = random.below(2) == 0;
    assignment.bin.push_back(static_cast<std::int32_t>(i < static_cast<std::size_t>(bins) ? i
                                                       : skewed                           ? 0
                                                                : random.below(bins)));
  }
  return assignment;
}

/// The mean gradient over all tokens of one batch on one rank.
Gradient unscheduled(const std::vector<ToySample>& samples) {
  Gradient sum{};
  double tokens = 0;
  for (const ToySample& sample : samples) {
    for (const Token& token : sample) add(sum, gradient(token), 1);
    tokens += static_cast<double>(sample.size());
  }
  Gradient mean{};
  if (tokens > 0) add(mean, sum, 1 / tokens);
  return mean;
}

/// What a training loop does: weights the mean loss of each bin, accumulates over microbatches and sums over
/// dp.
Gradient scheduled(const std::vector<ToySample>& samples, const Assignment& assignment,
                   const std::vector<double>& weight) {
  Gradient over_ranks{};
  for (int rank = 0; rank < assignment.dp; ++rank) {
    Gradient accumulated{};
    for (int m = 0; m < assignment.microbatches; ++m) {
      const int b = m * assignment.dp + rank;
      std::vector<ToySample> in_bin;
      for (std::size_t i = 0; i < samples.size(); ++i) {
        if (assignment.bin[i] == b) in_bin.push_back(samples[i]);
      }
      add(accumulated, unscheduled(in_bin), weight[b]);
    }
    add(over_ranks, accumulated, 1);
  }
  return over_ranks;
}

double largest_difference(const Gradient& a, const Gradient& b) {
  double largest = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    largest = std::max(largest, std::abs(a[i] - b[i]) / std::max(std::abs(b[i]), 1e-300));
  }
  return largest;
}

/// Every third sample is text only. The others have encoder outputs, which are not predicted. Of 2n text
/// tokens the first n are the prompt and the other n are predicted.
std::vector<std::int64_t> token_counts(const std::vector<ToySample>& samples) {
  std::vector<std::int64_t> counts;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    Sample sample;
    sample.encoder_output_tokens = i % 3 == 0 ? 0 : 49;
    sample.llm_tokens = sample.encoder_output_tokens + 2 * static_cast<std::int64_t>(samples[i].size());
    counts.push_back(loss_tokens(sample));
  }
  return counts;
}

TEST(LossWeights, GradientsOfAnyAssignmentAreTheUnscheduledBatchs) {
  Random random(7);
  int unlike_means = 0;
  for (int round = 0; round < 300; ++round) {
    const int dp = 1 + static_cast<int>(random.below(4));
    const int microbatches = 1 + static_cast<int>(random.below(5));
    const auto samples = random_samples(random, dp * microbatches + static_cast<int>(random.below(30)));
    const Assignment assignment = random_bins(random, samples.size(), microbatches, dp);
    const LossWeights weights = loss_weights(token_counts(samples), assignment);
    const Gradient expected = unscheduled(samples);
    EXPECT_LE(largest_difference(scheduled(samples, assignment, weights.bin), expected), 1e-12)
        << "round " << round;

    // Weighting token by token gives the same.
    Gradient by_token{};
    for (const ToySample& sample : samples) {
      for (const Token& token : sample) add(by_token, gradient(token), weights.token);
    }
    EXPECT_LE(largest_difference(by_token, expected), 1e-12) << "round " << round;

    const std::vector<double> equal(weights.bin.size(), 1.0 / static_cast<double>(weights.bin.size()));
    unlike_means += largest_difference(scheduled(samples, assignment, equal), expected) > 1e-3 ? 1 : 0;
  }
  // Equally weighted means of microbatches differ from the batch mean, so the test would notice them.
  EXPECT_GT(unlike_means, 100);
}

TEST(LossWeights, AreTheBinsSharesOfTokens) {
  // Bin 0 has samples 0 and 2 with 6 + 2 tokens, bin 1 sample 1 with none, bin 2 sample 3 with 8, bin 3
  // sample 4 with 4. Of 20 tokens these are 8/20, 0, 8/20 and 4/20.
  const std::vector<std::int64_t> tokens = {6, 0, 2, 8, 4};
  const LossWeights weights = loss_weights(tokens, {2, 2, {0, 1, 0, 2, 3}});
  EXPECT_DOUBLE_EQ(weights.token, 0.05);
  ASSERT_EQ(weights.bin.size(), 4U);
  EXPECT_DOUBLE_EQ(weights.bin[0], 0.4);
  EXPECT_EQ(weights.bin[1], 0.0);
  EXPECT_DOUBLE_EQ(weights.bin[2], 0.4);
  EXPECT_DOUBLE_EQ(weights.bin[3], 0.2);
}

/// A sample with one image, or text only if it has 0 encoder output tokens.
Sample sample_of(std::int64_t encoder_output_tokens, std::int64_t llm_tokens) {
  Sample sample;
  if (encoder_output_tokens > 0) sample.encoder_sequences.push_back({1, 196, std::int64_t{196} * 196});
  sample.encoder_output_tokens = encoder_output_tokens;
  sample.llm_tokens = llm_tokens;
  return sample;
}

TEST(LossTokens, AreTheSecondHalfOfTheText) {
  EXPECT_EQ(text_tokens(sample_of(0, 12)), 12);
  EXPECT_EQ(loss_tokens(sample_of(0, 12)), 6);
  // 60 - 49 = 11 text tokens: the first 11 / 2 = 5 are the prompt.
  EXPECT_EQ(text_tokens(sample_of(49, 60)), 11);
  EXPECT_EQ(loss_tokens(sample_of(49, 60)), 6);
}

TEST(LossTokens, OfShortTextsKeepATokenOfPrompt) {
  EXPECT_EQ(loss_tokens(sample_of(49, 49)), 0);
  EXPECT_EQ(loss_tokens(sample_of(49, 50)), 0);
  EXPECT_EQ(loss_tokens(sample_of(49, 51)), 1);
  EXPECT_EQ(loss_tokens(sample_of(49, 52)), 2);  // 3 / 2 = 1 prompt token
  // Never negative, even with inconsistent counts.
  EXPECT_EQ(text_tokens(sample_of(49, 40)), 0);
  EXPECT_EQ(loss_tokens(sample_of(49, 40)), 0);
}

TEST(LossWeights, OfABatchWithoutLossAreZero) {
  const std::vector<std::int64_t> tokens = {0, 0};
  const LossWeights weights = loss_weights(tokens, {2, 1, {0, 1}});
  EXPECT_EQ(weights.token, 0.0);
  EXPECT_EQ(weights.bin, (std::vector<double>{0.0, 0.0}));
}

void expect_refused(const std::vector<std::int64_t>& tokens, const Assignment& assignment,
                    const std::string& message) {
  try {
    loss_weights(tokens, assignment);
    FAIL() << "expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    EXPECT_EQ(std::string(error.what()), message);
  }
}

TEST(LossWeights, RefuseWhatDoesNotFit) {
  expect_refused({1, 2}, {1, 1, {0}}, "loss weights: expected a bin for each of 2 samples, found 1");
  expect_refused({1, 2}, {1, 2, {0, 2}}, "loss weights: sample 1: expected a bin from 0 to 1, found 2");
  expect_refused({1, 2}, {1, 2, {-1, 1}}, "loss weights: sample 0: expected a bin from 0 to 1, found -1");
  expect_refused({1, -2}, {1, 2, {0, 1}}, "loss weights: sample 1: expected at least 0 tokens, found -2");
}

}  // namespace loss_weight_test
}  // namespace dflop
