// Tars become samples whose shapes, from headers, are those of what is decoded.
#include "backend/content/shard_data.hpp"

#include <gtest/gtest.h>

#include <atomic>

#include "backend/content/content_loader.hpp"
#include "core/error.hpp"
#include "tests/backend/content/shard_folder.hpp"
#include "traces/files/hugging_face.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace shard_data_test {

const std::string kShard = std::string(DFLOP_SOURCE_DIR) + "/tests/golden/io/shard-000000.tar";

struct ShardDataTest : ::testing::Test {
  testing::ShardFolder folder;
  ModelSpec model = parse_hugging_face(read_text_file(folder.path() + "/config.json"), folder.path());
};

TEST_F(ShardDataTest, ShapesFromHeadersAreThoseOfContents) {
  const ShardData data(model, folder.path(), kShard);
  ASSERT_EQ(data.samples().size(), 3U);
  EXPECT_EQ(data.samples()[0].id, "shard-000000.tar/sample_0000");
  for (const Sample& sample : data.samples()) {
    const SampleContent content = data.read(sample.id, true);
    const Sample decoded = shape_of(model, sample.id, content);
    EXPECT_EQ(decoded.encoder(), sample.encoder());
    EXPECT_EQ(decoded.llm(), sample.llm());
    EXPECT_EQ(decoded.encoder_output_tokens, sample.encoder_output_tokens);
    // A row of the encoder has the values of its patch: 2 frames, 3 colours, 6 x 6 pixels.
    ASSERT_EQ(content.sequences.size(), 1U);
    EXPECT_EQ(std::ssize(content.sequences[0].values), content.sequences[0].rows * 2 * 3 * 6 * 6);
  }
}

/// The answer of sample 1 is "Picture 1." and the token that ends it; only they are targets.
TEST_F(ShardDataTest, AnswersAreTrained) {
  const ShardData data(model, folder.path(), kShard);
  const TokenSequence tokens = data.read("shard-000000.tar/sample_0001", true).tokens;
  std::vector<std::int32_t> trained;
  for (const std::int32_t target : tokens.targets) {
    if (target != kNoTarget) trained.push_back(target);
  }
  const Tokenizer tokenizer(folder.path() + "/tokenizer.json");
  EXPECT_EQ(tokenizer.decode(trained), "Picture 1.<|im_end|>");
}

TEST_F(ShardDataTest, WhatIsLongerThanTheModelIsLeftOut) {
  model.max_tokens = 40;  // each picture alone has more
  const ShardData data(model, folder.path(), kShard);
  EXPECT_TRUE(data.samples().empty());
  EXPECT_EQ(data.left_out().count, 3U);
  EXPECT_NE(data.left_out().first.find("sample_0000"), std::string::npos) << data.left_out().first;
}

std::string refusal(const ModelSpec& model, const std::string& folder) {
  try {
    ShardData(model, folder, kShard);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_F(ShardDataTest, ATokenizerOfAnotherModelIsRefused) {
  ModelSpec other = model;
  other.architecture->image_token = 17;
  EXPECT_NE(refusal(other, folder.path()).find("expected token '<|image_pad|>' with id 17"),
            std::string::npos);
  other = model;
  other.llm.vocabulary = 100;
  EXPECT_NE(refusal(other, folder.path()).find("expected at most 100 tokens"), std::string::npos);
}

Sample sample_of(const std::string& id) {
  Sample sample;
  sample.id = id;
  return sample;
}

SampleContent rows_of(std::int64_t rows) {
  SampleContent content;
  content.tokens.rows = rows;
  return content;
}

TEST(ContentLoaderTest, KeepsTheLatestTwoBatches) {
  std::atomic<int> made = 0;
  const std::vector<Sample> first = {sample_of("1"), sample_of("22"), sample_of("1")};
  const std::vector<Sample> second = {sample_of("22"), sample_of("333")};
  ContentLoader loader(
      [&](const std::string& id) {
        ++made;
        return rows_of(std::ssize(id));
      },
      3);
  loader.begin(first);
  loader.wait(first);
  EXPECT_EQ(made, 2);
  loader.begin(second);
  loader.wait(second);
  EXPECT_EQ(made, 3);  // "22" was there
  for (const char* id : {"1", "22", "333"}) {
    EXPECT_EQ(loader.tokens(sample_of(id)).rows, std::ssize(std::string(id)));
  }
  loader.begin(second);
  EXPECT_THROW(static_cast<void>(loader.tokens(sample_of("1"))), Error);
  EXPECT_EQ(loader.tokens(sample_of("333")).rows, 3);
}

TEST(ContentLoaderTest, FailuresComeWithTheBatch) {
  ContentLoader loader(
      [](const std::string& id) {
        if (id == "bad") throw Error(ErrorKind::input, "damaged", id);
        return rows_of(1);
      },
      2);
  loader.begin({sample_of("good"), sample_of("bad")});
  loader.wait({sample_of("good")});
  EXPECT_THROW(loader.wait({sample_of("bad")}), Error);
  EXPECT_THROW(loader.wait({sample_of("never begun")}), Error);
}

}  // namespace shard_data_test
}  // namespace dflop
