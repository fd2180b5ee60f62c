#include "costmodel/correction_drift.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "core/random.hpp"
#include "costmodel/flops.hpp"
#include "tests/costmodel/fixtures.hpp"

namespace dflop {
namespace {

/// Images of 1 to 9 tiles and texts of 100 to 1099 tokens; `images` of ten samples have an image.
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
  // Four measures of 99.9 % each: 1 in 250 draws is expected to drift; 50 draws.
  const ModelSpec model = fixtures::llava_llama3_8b();
  Random random(1);
  const std::vector<Sample> profile = draw(random, 4000, 7);
  const ShapeDrift drift(model, profile);
  int replans = 0;
  for (int k = 0; k < 50; ++k) replans += drift.advise(draw(random, 300, 7)).replan ? 1 : 0;
  EXPECT_LE(replans, 2);
}

TEST(ShapeDrift, FewerImagesAskForANewPlan) {
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
  // 0.4 / 0.9 of the images of before.
  EXPECT_NEAR(advice.measures[0].recent / advice.measures[0].profile, 0.444, 0.06);
  EXPECT_TRUE(advice.measures[0].drifted());
  // Half of all samples, which had an image, are text now: half of the mass has moved.
  EXPECT_NEAR(advice.measures[3].recent, 0.5, 0.06);
  EXPECT_EQ(advice.measures[3].name, "shape_distance");
}

TEST(ShapeDrift, ASmallDriftIsNoReason) {
  // All texts 2 % longer: seen in two thousand samples, of no effect on a plan.
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

TEST(ShapeDrift, ShapesThatTheProfileLacksAreAway) {
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

}  // namespace
}  // namespace dflop
