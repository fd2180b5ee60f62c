// dflop train learns from Megatron's token ids.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/shard_training.hpp"

namespace dflop {
namespace train_tokens_test {

using nlohmann::json;
using testing::RunResult;

const std::string kSource = DFLOP_SOURCE_DIR;
const std::string kText = kSource + "/tests/golden/io/text";  // 111 + 81 + 94 + 102 + 84 = 472 tokens

struct TrainTokens : testing::ShardTraining {
  RunResult train(const std::string& options, const std::string& data = kText) {
    return train_on(data, 4, options);
  }
};

/// The LLM of a model with an encoder learns from words only.
TEST_F(TrainTokens, LearnsPackedWords) {
  const std::vector<double> found = losses(train("--steps 10 --sequence-length 40"));
  ASSERT_EQ(found.size(), 10U);
  EXPECT_NEAR(found.front(), std::log(708.0), 0.7);
  EXPECT_LT(found.back(), 0.8 * found.front());
}

TEST_F(TrainTokens, HasTheSameLossesUnderOtherPlans) {
  const std::vector<double> expected = losses(train("--steps 3"));
  const std::vector<double> found = losses(train("--steps 3 --tp 2 --pp 2 --microbatches 2", kText + ".idx"));
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-3 * expected[i]);
}

TEST_F(TrainTokens, ResumesBitIdentically) {
  const std::vector<double> whole = losses(train("--steps 6 --sequence-length 50"));
  losses(train("--steps 3 --sequence-length 50 --checkpoint c"));
  const std::vector<double> rest = losses(train("--steps 6 --sequence-length 50 --checkpoint c --resume"));
  ASSERT_EQ(rest.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(rest[i], whole[3 + i]);
  testing::expect_error(train("--steps 6 --sequence-length 60 --checkpoint c --resume"), {"fingerprint"});
}

/// 471 targets are 11 samples of 40 and one of 31.
TEST_F(TrainTokens, AnIndexHasTheShapes) {
  const RunResult data =
      sandbox.run("data --hf hf --sequence-length 40 --index index.json --data " + kText + ".bin");
  ASSERT_EQ(data.exit_code, 0) << data.err;
  EXPECT_NE(data.out.find("12 samples: 12 text"), std::string::npos) << data.out;
  const std::string index = testing::read_all(sandbox.path("index.json"));
  EXPECT_NE(index.find("\"id\":\"text/11\""), std::string::npos) << index;
  EXPECT_EQ(
      sandbox.run("plan --planner search --hf hf --cluster a100-80g:1 --gbs 4 --data index.json").exit_code,
      0);
}

/// Options for one kind of data apply to whichever of the two data sets has that kind.
TEST_F(TrainTokens, EvaluatesOnAnotherKindOfData) {
  const std::string tar = kSource + "/tests/golden/io/shard-000000.tar";
  const std::string both = "--steps 1 --chat qwen2 --sequence-length 40 --eval-data ";
  EXPECT_EQ(losses(train_on(kText, 3, both + tar)).size(), 1U);
  // 471 targets are 12 samples of at most 40, and two batches use six of them.
  const RunResult words = train_on(tar, 3, both + kText + " --eval-steps 2");
  EXPECT_EQ(losses(words).size(), 1U);
  EXPECT_NE(words.err.find("evaluations use 6 of 12 samples"), std::string::npos) << words.err;
  testing::expect_error(train("--steps 1 --assume-text 99 --eval-data " + tar), {"--assume-text", "records"});
}

TEST_F(TrainTokens, RejectsMismatchedData) {
  testing::expect_error(train("--steps 1 --chat qwen2"), {"--chat", "token ids"});
  testing::expect_error(train("--steps 1 --sequence-length 99999999"), {"--sequence-length"});
  testing::expect_error(train("--steps 1 --sequence-length 8", kSource + "/tests/golden/io/shard-000000.tar"),
                        {"--sequence-length", "conversations"});
  testing::expect_error(train("--steps 1", "none.idx"), {"none.idx", "No such file"});
  // The small Llama model has 320 tokens, while the text's ids go up to 699.
  testing::expect_error(sandbox.run("train --random-weights --steps 9 --gbs 5 --hf " + kSource +
                                    "/tests/golden/models/llama3 --data " + kText),
                        {"text.bin: offset ", "from 0 to 319"});
}

}  // namespace train_tokens_test
}  // namespace dflop
