// Answers of real architectures equal the answers of transformers, token by token.
#include "backend/content/generator.hpp"

#include <gtest/gtest.h>

#include "backend/content/folder_weights.hpp"
#include "backend/host/world.hpp"
#include "core/error.hpp"
#include "tests/backend/content/golden_model.hpp"
#include "traces/text/strict_json.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kMax = 8;

/// Returns the answers for a model's samples in tests/golden/models/answers.json.
std::vector<std::vector<std::int32_t>> golden_answers(const std::string& model) {
  const std::string file = std::string(DFLOP_SOURCE_DIR) + "/tests/golden/models/answers.json";
  const std::string text = read_text_file(file);
  const JsonDocument document(text, file);
  std::vector<std::vector<std::int32_t>> answers;
  for (const JsonValue& answer : document.root().at(model).elements()) {
    answers.emplace_back();
    for (const JsonValue& id : answer.elements())
      answers.back().push_back(static_cast<std::int32_t>(id.number()));
  }
  return answers;
}

class GoldenAnswers : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenAnswers, EqualTransformers) {
  const testing::GoldenModel golden = testing::read_golden_model(GetParam());
  const auto expected = golden_answers(GetParam());
  ASSERT_EQ(expected.size(), golden.samples.size());
  for (const DType dtype : {DType::f32, DType::f64}) {
    HostWorld world(1);
    const FolderWeights weights(golden.spec, golden.folder);
    const LocalRank rank(world, 0, dtype);
    const RankContext context = context_of(rank);
    const Generator generator(golden.spec, context, 1, &weights);
    for (std::size_t s = 0; s < golden.samples.size(); ++s) {
      const SampleContent content = content_of(golden, golden.samples[s]);
      const std::vector<std::int32_t> found =
          generator.answer(content, kMax, golden.spec.llm.vocabulary).found;
      EXPECT_EQ(found, expected[s]) << "sample " << s;
      // A token is never generated if its id is not below the given vocabulary, even if it is the likeliest.
      EXPECT_LT(generator.answer(content, 1, found[0]).found[0], found[0]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Host, GoldenAnswers,
                         ::testing::Values("qwen2-tied", "llama3", "llava-onevision-qwen2",
                                           "llava-onevision-llama3", "qwen2.5-vl", "internvl-300m-style",
                                           "internvl-6b-style", "qwen2-audio"),
                         [](const auto& name) {
                           std::string text = name.param;
                           for (char& c : text) c = c == '-' || c == '.' ? '_' : c;
                           return text;
                         });

/// Returns four positions: a newline, text, an encoder row, text. The third position is the first with a
/// trained target, if there is one.
SampleContent four_places(bool trained) {
  SampleContent sample;
  sample.tokens = {.rows = 4,
                   .ids = {5, 6},
                   .id_places = {1, 3},
                   .newlines = {0},
                   .targets = {kNoTarget, kNoTarget, trained ? 6 : kNoTarget, kNoTarget},
                   .positions = {0, 0, 1, 1, 2, 2, 3, 3}};
  EncoderSequence early;
  early.places = {2};
  EncoderSequence late;
  late.places = {3};
  sample.sequences = {early, late};
  return sample;
}

TEST(Prompt, EndsBeforeTheFirstTrainedToken) {
  const SampleContent prompt = prompt_of(four_places(true));
  EXPECT_EQ(prompt.tokens.rows, 3);
  EXPECT_EQ(prompt.tokens.ids, std::vector<std::int32_t>{5});
  EXPECT_EQ(prompt.tokens.positions, (std::vector<std::int32_t>{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(prompt.tokens.targets, std::vector<std::int32_t>(3, kNoTarget));
  ASSERT_EQ(prompt.sequences.size(), 1U) << "what comes later is not seen";
  EXPECT_EQ(prompt.sequences[0].places, std::vector<std::int32_t>{2});
}

TEST(Prompt, NeedsAnAnswer) {
  EXPECT_THROW(prompt_of(four_places(false)), Error);
}

TEST(Prompt, ANewTokenAdvancesThePositionOnAllAxes) {
  TokenSequence tokens = prompt_of(four_places(true)).tokens;
  add_token(tokens, 9);
  EXPECT_EQ(tokens.rows, 4);
  EXPECT_EQ(tokens.ids, (std::vector<std::int32_t>{5, 9}));
  EXPECT_EQ(tokens.id_places, (std::vector<std::int32_t>{1, 3}));
  EXPECT_EQ(tokens.positions, (std::vector<std::int32_t>{0, 0, 1, 1, 2, 2, 3, 3}));
}

}  // namespace
}  // namespace dflop
