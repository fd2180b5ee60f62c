#include "backend/model/made_up.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>

#include "core/error.hpp"
#include "core/program/loss_weight.hpp"
#include "core/support/random.hpp"

namespace dflop {
namespace made_up_test {

constexpr std::uint64_t kSeed = 3;
constexpr std::int64_t kVocabulary = 128;

/// Two tiles of 16 tokens and a frame of 9 that yield 8 LLM tokens, and some text.
Sample image_sample(const std::string& id, std::int64_t text) {
  Sample sample;
  sample.id = id;
  sample.modality = Modality::image;
  sample.encoder_sequences = {{2, 16, 256}, {1, 9, 81}};
  sample.encoder_output_tokens = 8;
  sample.llm_tokens = 8 + text;
  return sample;
}

Sample text_sample(const std::string& id, std::int64_t text) {
  Sample sample;
  sample.id = id;
  sample.llm_tokens = text;
  return sample;
}

/// Returns the first sample of class `wanted`, from number `from` on.
Sample sample_of_class(int wanted, int from = 0) {
  for (int i = from;; ++i) {
    const Sample sample = image_sample("image " + std::to_string(i), 20);
    if (image_class(kSeed, sample) == wanted) return sample;
  }
}

TEST(Synthetic, ClassesAreEquallyFrequent) {
  std::array<int, kImageClasses> count{};
  for (int i = 0; i < 8000; ++i) ++count.at(image_class(kSeed, image_sample(std::to_string(i), 5)));
  // 1,000 are expected of each class, with standard deviation sqrt(8000 * 1/8 * 7/8) = 29.6; five of these
  // are 148.
  for (const int n : count) EXPECT_NEAR(n, 1000, 148);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(image_class(kSeed, text_sample(std::to_string(i), 5)), 0);
}

TEST(Synthetic, DependsOnlyOnSeedAndId) {
  const Sample a = sample_of_class(2);
  const Sample same_class = sample_of_class(2, 1 + std::stoi(a.id.substr(6)));
  EXPECT_EQ(sequence_pixels(kSeed, a, 1), sequence_pixels(kSeed, a, 1));
  EXPECT_EQ(text_ids(kSeed, a, kVocabulary), text_ids(kSeed, a, kVocabulary));
  // Each sequence, sample and seed has its own noise, and each sample and seed its own prompt.
  EXPECT_NE(sequence_pixels(kSeed, a, 0), sequence_pixels(kSeed, a, 1));
  EXPECT_NE(sequence_pixels(kSeed, a, 0), sequence_pixels(kSeed, same_class, 0));
  EXPECT_NE(sequence_pixels(kSeed, a, 0), sequence_pixels(kSeed + 1, a, 0));
  EXPECT_NE(text_ids(kSeed, a, kVocabulary), text_ids(kSeed, same_class, kVocabulary));
  EXPECT_NE(text_ids(kSeed, a, kVocabulary), text_ids(kSeed + 1, a, kVocabulary));
}

// Expected values come from another program with its own mt19937_64 and FNV-1a.
TEST(Synthetic, EqualsAnotherImplementation) {
  const Sample sample = image_sample("a", 5);
  EXPECT_EQ(image_class(3, sample), 7);
  EXPECT_EQ(text_ids(3, sample, 128), (std::vector<std::int32_t>{58, 37, 51, 121, 87}));
  const std::vector<float> pixels = sequence_pixels(3, sample, 1);
  EXPECT_EQ(pixels[0], 1.3286206722259521F);
  EXPECT_EQ(pixels[1], 1.0606884956359863F);
  EXPECT_EQ(pixels[2], 0.5081146955490112F);
}

TEST(Synthetic, PixelsAreThePatternOfTheClassAndNoise) {
  std::set<std::vector<bool>> patterns;
  for (int c = 0; c < kImageClasses; ++c) {
    const Sample sample = sample_of_class(c);
    std::vector<bool> positive;  // signs in the first patch
    for (std::int64_t s = 0; s < 3; ++s) {
      const std::vector<float> pixels = sequence_pixels(kSeed, sample, s);
      ASSERT_EQ(pixels.size(), (s < 2 ? 16U : 9U) * kPatchValues);
      for (std::size_t i = 0; i < pixels.size(); ++i) {
        // 1 or -1 plus noise of less than 0.5, so the pattern, which all patches share, decides the sign.
        EXPECT_GE(std::abs(pixels[i]), 0.5F);
        EXPECT_LE(std::abs(pixels[i]), 1.5F);
        if (positive.size() < kPatchValues) positive.push_back(pixels[i] > 0);
        EXPECT_EQ(pixels[i] > 0, positive[i % kPatchValues]);
      }
    }
    // Both signs are equally frequent, so that brightness does not reveal the class.
    EXPECT_EQ(std::count(positive.begin(), positive.end(), true), kPatchValues / 2);
    patterns.insert(positive);
  }
  EXPECT_EQ(patterns.size(), 8U);
}

TEST(Synthetic, PatternsOfTwoClassesDifferInHalfOfTheirValues) {
  for (int c = 0; c < kImageClasses; ++c) {
    for (int other = 0; other < c; ++other) {
      const std::vector<float> a = sequence_pixels(kSeed, sample_of_class(c), 0);
      const std::vector<float> b = sequence_pixels(kSeed, sample_of_class(other), 0);
      int differ = 0;
      for (int v = 0; v < kPatchValues; ++v) differ += (a[v] > 0) != (b[v] > 0) ? 1 : 0;
      EXPECT_EQ(differ, kPatchValues / 2) << c << " and " << other;
    }
  }
}

TEST(Synthetic, MissingSequencesAreRejected) {
  for (const std::int64_t sequence : {-1, 3}) {
    try {
      sequence_pixels(kSeed, image_sample("a", 4), sequence);
      FAIL() << sequence;
    } catch (const Error& error) {
      EXPECT_EQ(error.message(),
                "sample 'a': expected an encoder sequence from 0 to 2, found " + std::to_string(sequence));
    }
  }
}

TEST(Synthetic, AnswersDependOnPreviousTokenAndClass) {
  for (int c = 0; c < kImageClasses; ++c) {
    const std::vector<std::int32_t> ids = text_ids(kSeed, sample_of_class(c), kVocabulary);
    ASSERT_EQ(ids.size(), 20U);
    for (std::size_t k = 10; k < 20; ++k) EXPECT_EQ(ids[k], (5 * ids[k - 1] + 17 * c + 3) % 128) << c;
  }
}

TEST(Synthetic, AnswersNeedTheClass) {
  // After the same prompt token, no two classes continue in the same way: 17 times a difference of 1 to 7 is
  // 17 to 119, not a multiple of 128 or 512.
  for (const std::int64_t vocabulary : {128, 512}) {
    std::set<std::int64_t> steps;
    for (int c = 0; c < kImageClasses; ++c) {
      const std::vector<std::int32_t> ids = text_ids(kSeed, sample_of_class(c), vocabulary);
      steps.insert(((ids[10] - 5 * std::int64_t{ids[9]}) % vocabulary + vocabulary) % vocabulary);
    }
    EXPECT_EQ(steps.size(), 8U);
  }
}

TEST(Synthetic, IdsAreInTheVocabulary) {
  Random random(9);
  for (int round = 0; round < 300; ++round) {
    const auto vocabulary = static_cast<std::int64_t>(1 + random.below(round % 2 == 0 ? 40 : 1'000'000));
    const auto text = static_cast<std::int64_t>(random.below(60));
    const std::string id = std::to_string(round);
    const std::vector<std::int32_t> ids =
        text_ids(kSeed, round % 3 == 0 ? text_sample(id, text) : image_sample(id, text), vocabulary);
    EXPECT_EQ(static_cast<std::int64_t>(ids.size()), text);
    for (const std::int32_t token : ids) {
      EXPECT_GE(token, 0);
      EXPECT_LT(token, vocabulary);
    }
  }
}

TEST(Synthetic, TargetsAreTheNextTokensOfTheAnswer) {
  // 8 encoder tokens and 5 text tokens, of which 5 / 2 = 2 are the prompt and 3 the answer. The targets of
  // positions 9, 10 and 11 are their next tokens: text tokens 2, 3 and 4.
  const Sample sample = image_sample("a", 5);
  const std::vector<std::int32_t> ids = text_ids(kSeed, sample, kVocabulary);
  std::vector<std::int32_t> expected(13, kNoTarget);
  expected[9] = ids[2];
  expected[10] = ids[3];
  expected[11] = ids[4];
  EXPECT_EQ(target_ids(kSeed, sample, kVocabulary), expected);
}

TEST(Synthetic, TheNumberOfTargetsIsTheLossTokens) {
  for (std::int64_t text = 0; text < 40; ++text) {
    for (const Sample& sample : {image_sample("a", text), text_sample("a", text)}) {
      const std::vector<std::int32_t> ids = text_ids(kSeed, sample, kVocabulary);
      const std::vector<std::int32_t> targets = target_ids(kSeed, sample, kVocabulary);
      ASSERT_EQ(static_cast<std::int64_t>(targets.size()), sample.llm_tokens);
      const auto none = std::count(targets.begin(), targets.end(), kNoTarget);
      EXPECT_EQ(sample.llm_tokens - none, loss_tokens(sample)) << text;
      for (std::size_t p = 0; p < targets.size(); ++p) {
        if (targets[p] == kNoTarget) continue;
        const std::size_t next = p + 1 - static_cast<std::size_t>(sample.encoder_output_tokens);
        EXPECT_EQ(targets[p], ids.at(next)) << text;
      }
    }
  }
}

TEST(Synthetic, SamplesCutToTheirImagesHaveNoText) {
  Sample cut = image_sample("a", 0);
  cut.llm_tokens = 8;
  EXPECT_TRUE(text_ids(kSeed, cut, kVocabulary).empty());
  EXPECT_EQ(target_ids(kSeed, cut, kVocabulary), std::vector<std::int32_t>(8, kNoTarget));
  cut.llm_tokens = 5;  // inconsistent counts
  EXPECT_TRUE(text_ids(kSeed, cut, kVocabulary).empty());
  EXPECT_EQ(target_ids(kSeed, cut, kVocabulary).size(), 5U);
}

/// Pairs of rows are averaged. An odd last row gives no token, so a sequence of one row gives none; next to a
/// longer sequence that is fine.
TEST(Synthetic, RejectsLlmTokensOfSequencesThatAreTooShort) {
  ModelSpec model;
  model.encoder.layers = 1;
  model.connector = {{8, 8}, 2};
  model.architecture.emplace().connector.averages = true;
  model.second = SecondEncoder{model.encoder, model.connector, {}, model.architecture->connector};
  const MadeUpContents contents(model, kSeed);
  Sample sample{"a", Modality::audio, {{1, 5, 25, true}, {1, 1, 1, true}}, 2, 9};
  EXPECT_EQ(contents.encoder(sample, 0, false)->places.size(), 2U);
  EXPECT_TRUE(contents.encoder(sample, 1, false)->places.empty());
  sample.encoder_sequences.erase(sample.encoder_sequences.begin());
  try {
    static_cast<void>(contents.encoder(sample, 0, false));
    ADD_FAILURE() << "one row gives no token";
  } catch (const Error& error) {
    EXPECT_EQ(error.message(),
              "sample 'a': expected at least 2 encoder tokens in a sequence that gives LLM tokens, found 1");
  }
}

}  // namespace made_up_test
}  // namespace dflop
