#include "costmodel/correction/drift.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "core/support/random.hpp"
#include "costmodel/analytic/flops.hpp"
#include "tests/costmodel/fixtures.hpp"

namespace dflop {
namespace correction_drift_test {

/// Images of 1 to 9 tiles and texts of 100 to 1099 tokens; `images` of every ten samples have an image.
std::vector<Sample> draw(Random& random, int count, std::uint64_t images) {
  std::vector<Sample> samples;
  for (int i = 0; i < count; ++i) {
    Sample sample;
    if (random.below(10) < images) {
      const auto tiles = static_cast<std::int64_t>(1 + random.below(9));
      sample.encoder_sequences = {{tiles, 729, 729 * 729}};
      sample.encoder_output_tokens = 729 * tiles;
    }
    sample.llm_tokens = sample.encoder_output_tokens + static_cast<std::int64_t>(100 + random.below(1000));
    samples.push_back(sample);
  }
  return samples;
}

TEST(ShapeDrift, TheSameDataDoNotDrift) {
  // Four measures at 99.9 % each: 1 in 250 draws is expected to report drift; here are 50 draws.
  const ModelSpec model = fixtures::llava_llama3_8b();
  Random random(1);
  const std::vector<Sample> profile = draw(random, 4000, 7);
  const ShapeDrift drift(model, profile);
  int replans = 0;
  for (int k = 0; k < 50; ++k) replans += drift.advise(draw(random, 300, 7)).replan ? 1 : 0;
  EXPECT_LE(replans, 2);
}

TEST(ShapeDrift, FewerImagesSuggestANewPlan) {
  const ModelSpec model = fixtures::llava_llama3_8b();
  Random random(2);
  const std::vector<Sample> profile = draw(random, 4000, 9);
  const std::vector<Sample> recent = draw(random, 1000, 4);
  const DriftAdvice advice = ShapeDrift(model, profile).advise(recent);
  EXPECT_TRUE(advice.replan);
  ASSERT_EQ(advice.measures.size(), 4U);
  double flop = 0;
  for (const Sample& sample : recent) flop += encoder_flop(model, sample.encoder()).count / 1000;
  EXPECT_NEAR(advice.measures[0].recent / flop, 1, 1e-12);
  // 0.4 / 0.9 of the previous images.
  EXPECT_NEAR(advice.measures[0].recent / advice.measures[0].profile, 0.444, 0.06);
  EXPECT_TRUE(advice.measures[0].drifted());
  // Half of all samples had an image before and are text now: half of the probability mass has moved.
  EXPECT_NEAR(advice.measures[3].recent, 0.5, 0.06);
  EXPECT_EQ(advice.measures[3].name, "shape_distance");
}

TEST(ShapeDrift, ASmallDriftIsNoReason) {
  // All texts are 2 % longer: detectable in two thousand samples, but with no effect on a plan.
  const ModelSpec model = fixtures::llava_llama3_8b();
  std::vector<Sample> profile;
  std::vector<Sample> recent;
  for (int i = 0; i < 2000; ++i) {
    Sample sample;
    sample.llm_tokens = 1100 + i % 10;
    profile.push_back(sample);
    sample.llm_tokens += 22;
    recent.push_back(sample);
  }
  const DriftAdvice advice = ShapeDrift(model, profile).advise(recent);
  EXPECT_TRUE(advice.measures[1].drifted());
  EXPECT_FALSE(advice.replan);
}

TEST(ShapeDrift, ShapesThatTheProfileLacksCountAsFar) {
  const ModelSpec model = fixtures::llava_llama3_8b();
  Sample text;
  text.llm_tokens = 1000;
  Sample image = text;
  image.encoder_sequences = {{1, 729, 729 * 729}};
  const DriftAdvice advice =
      ShapeDrift(model, std::vector<Sample>(50, text)).advise(std::vector<Sample>(50, image));
  EXPECT_NEAR(advice.measures[3].recent, 1, 1e-12);
  EXPECT_TRUE(advice.measures[0].drifted());  // from no encoder work to some
  EXPECT_TRUE(advice.replan);
  EXPECT_THROW(ShapeDrift(model, {}), Error);
  EXPECT_THROW(ShapeDrift(model, std::vector<Sample>(1, text)).advise({}), Error);
}

TEST(ShapeDrift, TheRangesHaveTheirStatedCoverage) {
  // Draws of 20 samples: 99.9 % of their means are expected between the second smallest and the second
  // largest of 3999. The fraction covered by such a range has a standard deviation of sqrt(4) / 4000 =
  // 0.0005; its mean over 20 ranges has 0.0001. The range from the smallest to the largest of 1000 would
  // cover 99.8 %.
  const ModelSpec model = fixtures::llava_llama3_8b();
  Random random(4);
  const std::vector<Sample> profile = draw(random, 500, 7);
  std::vector<double> flop;
  for (const Sample& sample : profile) flop.push_back(llm_flop(model, sample.llm()).count);
  constexpr int kDraws = 10'000;
  double inside = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    DriftOptions options;
    options.seed = seed;
    const DriftAdvice advice = ShapeDrift(model, profile, options).advise(std::span(profile).first(20));
    for (int d = 0; d < kDraws; ++d) {
      double mean = 0;
      for (int i = 0; i < 20; ++i) mean += flop[random.below(flop.size())] / 20;
      inside += mean >= advice.measures[1].least && mean <= advice.measures[1].most ? 1.0 : 0.0;
    }
  }
  EXPECT_NEAR(inside / (20.0 * kDraws), 0.999, 0.0004);
}

TEST(ShapeDrift, TheDistanceIsOneSided) {
  // Half texts, half images: of 400 drawn samples, the fraction of images has a standard deviation of 0.5 /
  // sqrt(400) = 0.025. The distance is the deviation from one half in either direction: 99.9 % are below 3.29
  // x 0.025 = 0.082, in steps of 0.0025. Taking 99.95 %, as for one of two sides, would be 3.48 and more, as
  // the ranks are small: 0.089.
  const ModelSpec model = fixtures::llava_llama3_8b();
  std::vector<Sample> profile(400);
  for (std::size_t i = 0; i < profile.size(); ++i) {
    profile[i].llm_tokens = 1000;
    if (i % 2 == 0) profile[i].encoder_sequences = {{1, 729, 729 * 729}};
  }
  double most = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    DriftOptions options;
    options.seed = seed;
    const DriftAdvice advice = ShapeDrift(model, profile, options).advise(profile);
    EXPECT_EQ(advice.measures[3].least, 0);
    most += advice.measures[3].most / 20;
  }
  EXPECT_NEAR(most, 0.082, 0.003);
}

TEST(ShapeDrift, TooFewResamplesAreRejected) {
  // The range from the smallest to the largest of n leaves 2 / (n + 1) out: 0.1 % for 1999.
  const ModelSpec model = fixtures::llava_llama3_8b();
  const std::vector<Sample> profile(1);
  DriftOptions options;
  options.resamples = 1999;
  EXPECT_NO_THROW(ShapeDrift(model, profile, options));
  options.resamples = 1998;
  try {
    const ShapeDrift refused(model, profile, options);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    EXPECT_STREQ(error.what(), "drift: expected at least 1999 resamples, found 1998");
  }
}

TEST(ShapeDrift, SameSeedSameNumbers) {
  const ModelSpec model = fixtures::llava_llama3_8b();
  Random random(3);
  const std::vector<Sample> profile = draw(random, 500, 5);
  const std::vector<Sample> recent = draw(random, 200, 5);
  const DriftAdvice a = ShapeDrift(model, profile).advise(recent);
  const DriftAdvice b = ShapeDrift(model, profile).advise(recent);
  for (std::size_t m = 0; m < a.measures.size(); ++m) {
    EXPECT_EQ(a.measures[m].least, b.measures[m].least);
    EXPECT_EQ(a.measures[m].most, b.measures[m].most);
  }
}

}  // namespace correction_drift_test
}  // namespace dflop
