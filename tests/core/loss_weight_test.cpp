#include "core/program/loss_weight.hpp"

#include <gtest/gtest.h>

namespace dflop {
namespace loss_weight_test {

/// A sample of one image, or with 0 encoder output tokens of text only.
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
  // 60 - 49 = 11 of text: the first 11 / 2 = 5 are the prompt.
  EXPECT_EQ(text_tokens(sample_of(49, 60)), 11);
  EXPECT_EQ(loss_tokens(sample_of(49, 60)), 6);
}

TEST(LossTokens, OfShortTextsKeepATokenOfPrompt) {
  EXPECT_EQ(loss_tokens(sample_of(49, 49)), 0);
  EXPECT_EQ(loss_tokens(sample_of(49, 50)), 0);
  EXPECT_EQ(loss_tokens(sample_of(49, 51)), 1);
  EXPECT_EQ(loss_tokens(sample_of(49, 52)), 2);  // 3 / 2 = 1 of prompt
  // Never negative, whatever the counts say.
  EXPECT_EQ(text_tokens(sample_of(49, 40)), 0);
  EXPECT_EQ(loss_tokens(sample_of(49, 40)), 0);
}

}  // namespace loss_weight_test
}  // namespace dflop
