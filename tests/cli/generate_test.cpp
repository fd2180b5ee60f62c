// dflop generate prints a model's answers to samples.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/run.hpp"

namespace dflop {
namespace generate_test {

using nlohmann::json;
using testing::expect_error;
using testing::Sandbox;

const std::string kEmoji = "--hf traces/emoji/model --data traces/emoji/held-out.tar ";

TEST(Generate, PrintsAnswersNextToTheSamplesAnswers) {
  const Sandbox sandbox;
  const auto result =
      sandbox.run("generate " + kEmoji + "--random-weights --samples 2 --tokens 3 --format json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json rows = testing::rows_of(result.out);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0]["sample"], "held-out.tar/1f4f5");
  EXPECT_EQ(rows[0]["expected"], "no mobile phones<|im_end|>");
  EXPECT_EQ(rows[0]["equal"], "no");
  EXPECT_NE(result.err.find("0 of 2 answers are as expected; 6 tokens"), std::string::npos) << result.err;
  // The result depends only on the seed.
  EXPECT_EQ(sandbox.run("generate " + kEmoji + "--random-weights --samples 2 --tokens 3 --format json").out,
            result.out);
  EXPECT_NE(
      sandbox.run("generate " + kEmoji + "--random-weights --samples 2 --tokens 3 --format json --seed 2")
          .out,
      result.out);
}

/// 80 steps memorize seven pictures, and the exported folder gives their names.
TEST(Generate, PrintsTheAnswersThatATrainedModelLearned) {
  const Sandbox sandbox;
  const auto trained = sandbox.run("train " + kEmoji +
                                   "--random-weights --steps 80 --gbs 7 --learning-rate 3e-3 --clip-norm 1 "
                                   "--layout uniform --tp 1 --pp 1 --dp 1 --microbatches 1 --export learned");
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const auto result =
      sandbox.run("generate --hf learned --data traces/emoji/held-out.tar --tokens 16 --format json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const json& row : testing::rows_of(result.out)) EXPECT_EQ(row["answer"], row["expected"]);
}

TEST(Generate, RejectsWrongModelsAndData) {
  const Sandbox sandbox;
  expect_error(sandbox.run("generate --model tiny-vlm --data traces/emoji/held-out.tar"),
               {"option '--model'", "expected the folder of a Transformers model", "tiny-vlm"});
  expect_error(sandbox.run("generate --hf traces/emoji/model --data traces/datasets/vision_mix.csv"),
               {"option '--data'", "expected tars"});
  expect_error(sandbox.run("generate " + kEmoji), {"traces/emoji/model", "expected a model's weights"});
  expect_error(sandbox.run("generate --hf traces/emoji/model --data missing.tar --random-weights"),
               {"missing.tar"});
}

}  // namespace generate_test
}  // namespace dflop
