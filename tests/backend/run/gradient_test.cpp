// Compares the gradients of the whole model with central differences of its loss.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/program/loss_weight.hpp"
#include "tests/backend/run/live_model.hpp"
#include "tests/rounds.hpp"

namespace dflop {
namespace gradient_test {

using testing::live_model;
using testing::live_samples;
using testing::LiveRun;
using Kind = ParameterStore::Kind;

struct Case {
  std::string name;
  ModelSpec model;
  std::vector<Sample> samples;
};

/// Returns a sample with `text` LLM tokens in addition to the `encoded` ones from the encoder; a negative
/// `text` cuts tokens off.
Sample sample(const std::string& id, std::vector<EncoderSequences> sequences, std::int64_t encoded,
              std::int64_t text) {
  Sample made;
  made.id = id;
  made.encoder_sequences = std::move(sequences);
  made.encoder_output_tokens = encoded;
  made.llm_tokens = encoded + text;
  return made;
}

std::vector<Sample> text_only() {
  return {sample("a", {}, 0, 9), sample("b", {}, 0, 5), sample("c", {}, 0, 2)};
}

/// With one text token or none, there is only a prompt.
std::vector<Sample> some_without_trained_tokens() {
  return {sample("one_token", {{1, 6, 36}}, 4, 1), sample("no_text", {{2, 6, 36}}, 8, 0),
          sample("trained", {{1, 6, 36}}, 4, 7)};
}

/// A cut sample has no text left, so it must not affect any gradient.
std::vector<Sample> cut_off() {
  return {sample("cut", {{3, 6, 36}}, 12, -7), sample("whole", {{1, 6, 36}}, 4, 8)};
}

/// Tile sizes and their numbers of tokens do not divide each other. One tile gives more tokens than it has
/// rows, and one gives none.
std::vector<Sample> odd_tiles() {
  return {sample("odd", {{2, 7, 49}, {1, 1, 1}, {1, 9, 81}}, 11, 6), sample("wider", {{1, 2, 4}}, 5, 6),
          sample("none", {{1, 5, 25}}, 0, 6)};
}

ModelSpec merging_model() {
  ModelSpec model = live_model();
  model.connector.merge = 2;
  model.connector.widths = {32, 20, 24};
  return model;
}

ModelSpec one_linear_model() {
  ModelSpec model = live_model();
  model.connector.widths = {16, 24};
  return model;
}

std::vector<Case> cases() {
  return {{"images_and_text", live_model(), live_samples(5, 5)},
          {"text_only", live_model(), text_only()},
          {"some_without_trained_tokens", live_model(), some_without_trained_tokens()},
          {"cut_off", live_model(), cut_off()},
          {"odd_tiles", live_model(), odd_tiles()},
          {"video", live_model(), {sample("v", {{40, 4, 16}}, 60, 9), sample("w", {{25, 3, 9}}, 25, 4)}},
          {"merge", merging_model(), {sample("m", {{2, 6, 36}, {1, 4, 16}}, 8, 8), sample("t", {}, 0, 4)}},
          {"one_linear", one_linear_model(), live_samples(3, 8)}};
}

class LiveGradient : public ::testing::TestWithParam<Case> {
 protected:
  LiveGradient()
      : run_(plan_, GetParam().model, GetParam().samples, testing::dealt(plan_, GetParam().samples.size()),
             plan_order(plan_), DType::f64) {}

  /// Returns the derivative of the loss by one weight. Its error is of the order of the step squared, plus
  /// 1e-16 / step by rounding.
  double difference(const std::string& tensor, std::size_t entry) {
    constexpr double kStep = 2e-5;
    double& weight = weights_.at(tensor).values[entry];
    const double before = weight;
    const auto loss_at = [&](double value) {
      weight = value;
      run_.executor->write(Kind::weight, weights_);
      return run_.step(false).loss;
    };
    const double slope = (loss_at(before + kStep) - loss_at(before - kStep)) / (2 * kStep);
    weight = before;
    return slope;
  }

  Plan plan_ = testing::uniform_plan(1, 1, 1, 1);
  LiveRun run_;
  WholeTensors weights_;
};

/// Checks in every tensor the entry with the largest gradient and, without sanitizers, two random entries.
TEST_P(LiveGradient, IsTheSlopeOfTheLoss) {
  EXPECT_GT(run_.step(false).loss, 1);
  weights_ = run_.executor->read(Kind::weight);
  const WholeTensors gradients = run_.executor->read(Kind::gradient);
  Random random(17);
  for (const auto& [name, gradient] : gradients) {
    const auto& values = gradient.values;
    const auto largest = std::max_element(values.begin(), values.end(),
                                          [](double a, double b) { return std::abs(a) < std::abs(b); });
    std::vector<std::size_t> entries = {static_cast<std::size_t>(largest - values.begin())};
    while (entries.size() < static_cast<std::size_t>(testing::rounds(3))) {
      entries.push_back(static_cast<std::size_t>(random.below(values.size())));
    }
    for (const std::size_t entry : entries) {
      EXPECT_NEAR(values[entry], difference(name, entry), 1e-8 + 1e-6 * std::abs(values[entry]))
          << name << "[" << entry << "]";
    }
  }
}

/// The encoder gets a gradient only if its tokens are used for a trained token.
TEST_P(LiveGradient, ReachesTheEncoderIfItsTokensAreUsed) {
  bool used = false;
  for (const Sample& sample : GetParam().samples) {
    used = used || (sample.encoder_output_tokens > 0 && loss_tokens(sample) > 0);
  }
  run_.step(false);
  for (const auto& [name, gradient] : run_.executor->read(Kind::gradient)) {
    if (name != "encoder.patches") continue;
    const bool reached =
        std::any_of(gradient.values.begin(), gradient.values.end(), [](double g) { return g != 0; });
    EXPECT_EQ(reached, used);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, LiveGradient, ::testing::ValuesIn(cases()),
                         [](const auto& param) { return param.param.name; });

/// A batch without any trained token has loss 0 and no gradient.
TEST(LiveGradientOfNothing, IsZero) {
  const Plan plan = testing::uniform_plan(1, 1, 1, 1);
  LiveRun run(plan, {sample("a", {{1, 6, 36}}, 4, 0), sample("b", {}, 0, 1)}, DType::f64);
  EXPECT_EQ(run.step(true).loss, 0);
  for (const auto& [name, gradient] : run.executor->read(Kind::gradient)) {
    EXPECT_EQ(gradient.values, std::vector<double>(gradient.values.size(), 0.0)) << name;
  }
}

/// The loss is the mean over only the trained tokens. An untrained model is about as good as chance, so each
/// token costs about log(vocabulary), whatever the share of trained rows.
TEST(LiveGradientOfNothing, ComesFromUntrainedTokens) {
  const Plan plan = testing::uniform_plan(1, 1, 1, 1);
  LiveRun run(plan, live_samples(24, 5), DType::f64);
  // Logits have a standard deviation of about 1, which adds about 1/2.
  EXPECT_NEAR(run.step(false).loss, std::log(64.0) + 0.5, 0.5);
}

/// A cut in one sample does not affect other samples: only its own rows see it.
TEST(LiveGradientOfNothing, ComesFromCutOffTokens) {
  const Plan plan = testing::uniform_plan(1, 1, 1, 1);
  LiveRun both(plan, cut_off(), DType::f64);
  LiveRun whole(plan, {cut_off()[1]}, DType::f64);
  EXPECT_NEAR(both.step(false).loss, whole.step(false).loss, 1e-12);
  const WholeTensors expected = whole.executor->read(Kind::gradient);
  for (const auto& [name, gradient] : both.executor->read(Kind::gradient)) {
    EXPECT_LT(testing::distance(gradient, expected.at(name)), 1e-12) << name;
  }
}

}  // namespace gradient_test
}  // namespace dflop
