// Lines fitted to recorded durations over work.
#include <gtest/gtest.h>

#include "core/support/random.hpp"
#include "costmodel/recorded/work_line.hpp"

namespace dflop {
namespace work_line_test {

Work llm(std::int64_t tokens, std::int64_t pairs) {
  return {{}, {1, tokens, pairs}};
}

/// A stage of one layer without embedding or head.
Stage one_layer() {
  Stage stage;
  stage.encoder_layers = stage.llm_layers = 1;
  return stage;
}

/// 10 ms plus 50 us per token and 1 ns per pair.
Seconds truth(const Work& work) {
  return Seconds(0.01 + 50e-6 * static_cast<double>(work.llm.tokens) +
                 1e-9 * static_cast<double>(work.llm.attention_pairs));
}

TEST(WorkLine, FindsTermsBehindNoise) {
  Random random(1);
  WorkLine line;
  for (int i = 0; i < 40; ++i) {
    const auto tokens = static_cast<std::int64_t>(100 + random.below(900));
    const Work work = llm(tokens, tokens * static_cast<std::int64_t>(100 + random.below(1000)));
    line.add(one_layer(), work, truth(work) * (0.99 + 0.02 * random.uniform()));
  }
  line.settle();
  for (const std::int64_t tokens : {50, 300, 2000}) {
    const Work work = llm(tokens, tokens * 500);
    ASSERT_TRUE(line.price(one_layer(), work).has_value());
    EXPECT_NEAR(*line.price(one_layer(), work) / truth(work), 1, 0.03) << tokens;
  }
}

// Twice the tokens take 20 ms and three times 30 ms: no constant may become negative to fit the noise.
TEST(WorkLine, HasNoNegativeTerms) {
  WorkLine line;
  for (const std::int64_t tokens : {100, 200, 300, 400})
    line.add(one_layer(), llm(tokens, 0), Seconds(1e-4 * tokens - 0.0005));
  line.settle();
  ASSERT_TRUE(line.price(one_layer(), llm(1, 0)).has_value());
  EXPECT_GT(*line.price(one_layer(), llm(1, 0)), Seconds(0));
}

TEST(WorkLine, IsNoneIfWorkDoesNotDecide) {
  WorkLine few;
  for (const std::int64_t tokens : {100, 100, 200, 300})
    few.add(one_layer(), llm(tokens, 0), Seconds(1e-4 * tokens));
  few.settle();
  EXPECT_FALSE(few.price(one_layer(), llm(150, 0)).has_value()) << "three different works are too few";
  WorkLine noise;
  for (const std::int64_t tokens : {100, 200, 300, 400, 500})
    noise.add(one_layer(), llm(tokens, 0), Seconds(tokens == 300 ? 0.1 : 0.01));
  noise.settle();
  EXPECT_FALSE(noise.price(one_layer(), llm(150, 0)).has_value());
}

TEST(WorkLine, GoesNoFurtherThanFourTimes) {
  WorkLine line;
  for (const std::int64_t tokens : {100, 200, 300, 400})
    line.add(one_layer(), llm(tokens, 0), Seconds(1e-4 * tokens));
  line.settle();
  EXPECT_TRUE(line.price(one_layer(), llm(1600, 0)).has_value());
  EXPECT_FALSE(line.price(one_layer(), llm(1601, 0)).has_value());
  EXPECT_FALSE(line.price(one_layer(), {{1, 5, 5}, {}}).has_value()) << "no encoder was recorded";
}

// 2 us per token and layer, and 5 us per token in the head. From stages of 3 layers, of which the last has
// the head, follow the times of a stage of 6 layers with the head, 17 us per token, and of one of 2 layers
// without it, 4 us.
TEST(WorkLine, SeparatesLayersFromEnds) {
  Stage first;
  first.llm_layers = 3;
  first.embedding = true;
  Stage last = first;
  last.embedding = false;
  last.head = true;
  WorkLine line;
  for (const std::int64_t tokens : {100, 200, 300, 400}) {
    line.add(first, llm(tokens, 0), Seconds(6e-6 * tokens));
    line.add(last, llm(tokens + 50, 0), Seconds(11e-6 * (tokens + 50)));
  }
  line.settle();
  Stage whole = last;
  whole.llm_layers = 6;
  whole.embedding = true;
  Stage middle;
  middle.llm_layers = 2;
  ASSERT_TRUE(line.price(whole, llm(250, 0)).has_value());
  EXPECT_NEAR(*line.price(whole, llm(250, 0)) / Seconds(17e-6 * 250), 1, 1e-6);
  EXPECT_NEAR(*line.price(middle, llm(250, 0)) / Seconds(4e-6 * 250), 1, 1e-6);
}

// 10 ms plus 50 us per token of sounds, on a stage whose batches have no pictures. The second encoder has no
// layers of the stage, and its time does not depend on them.
TEST(WorkLine, PricesSoundsWithoutPictures) {
  Stage stage;
  stage.encoder_layers = 4;
  stage.connector = true;
  const auto sounds = [](std::int64_t tokens) { return Work{{0, 0, 0, 0, {1, tokens, 0}}, {}}; };
  WorkLine line;
  for (const std::int64_t tokens : {100, 200, 300, 400})
    line.add(stage, sounds(tokens), Seconds(0.01 + 50e-6 * static_cast<double>(tokens)));
  line.settle();
  ASSERT_TRUE(line.price(stage, sounds(1000)).has_value());
  EXPECT_NEAR(line.price(stage, sounds(1000))->count(), 0.06, 1e-9);
  stage.encoder_layers = 2;
  EXPECT_NEAR(line.price(stage, sounds(1000))->count(), 0.06, 1e-9);
  stage.connector = false;  // the second encoder is on another stage
  EXPECT_NEAR(line.price(stage, sounds(1000))->count(), 0.01, 1e-9);
  EXPECT_FALSE(line.price(stage, {{1, 5, 5}, {}}).has_value()) << "no pictures were recorded";
}

}  // namespace work_line_test
}  // namespace dflop
