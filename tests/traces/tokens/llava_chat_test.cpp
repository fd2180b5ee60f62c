// The chat forms of Vicuna and Mistral with a tokenizer that marks spaces: answers continue the texts before
// them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/traces/file_fixtures.hpp"
#include "traces/text/text_file.hpp"
#include "traces/tokens/chat.hpp"

namespace dflop::testing {
namespace llava_chat_test {

using Ids = std::vector<std::int32_t>;
using nlohmann::json;

constexpr std::int32_t kBegin = 1, kEnd = 2, kImage = 700;  // <s>, </s>, <image>

/// Returns the golden tokenizer, or one with the pre-tokenizer of newer files.
Tokenizer tokenizer_of(bool is_new) {
  json file = json::parse(read_text_file(DFLOP_SOURCE_DIR "/tests/golden/io/tokenizer-llama2.json"));
  if (is_new) {
    file["normalizer"] = nullptr;
    file["pre_tokenizer"] = {
        {"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}, {"split", false}};
  }
  return {file.dump(), "llama2"};
}

ChatTokens encoded(const ChatTokenizer& chat, const std::string& text,
                   const std::vector<std::int64_t>& counts = {}) {
  WordCache cache;
  return chat.encode(parse_conversation(text, "a.json"), counts, cache, "a");
}

/// Returns the conversation's whole text as its tokens say, with brackets around trained ones.
std::string shown(const Tokenizer& tokenizer, const ChatTokens& tokens) {
  std::string text;
  bool was_trained = false;
  for (std::size_t i = 0; i < tokens.ids.size(); ++i) {
    const bool is_trained = tokens.is_trained[i] != 0;
    if (is_trained != was_trained) text += is_trained ? "{" : "}";
    was_trained = is_trained;
    text += tokenizer.bytes_of(tokens.ids[i]);
  }
  return text + (was_trained ? "}" : "");
}

const std::string kPicture = R"({"conversations": [
    {"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "A license."},
    {"from": "human", "value": "Why?"}, {"from": "gpt", "value": "So."}]})";

Ids repeated(const Ids& ids, std::int64_t count) {
  Ids all;
  for (const std::int32_t id : ids)
    all.insert(all.end(), id == kImage ? static_cast<std::size_t>(count) : 1, id);
  return all;
}

/// Whole texts have the tokens of Hugging Face's library (sentence_piece_test.cpp).
TEST(LlavaChats, HaveTheTokensOfTheirWholeText) {
  const std::pair<std::string, std::string> forms[] = {
      {"vicuna", "USER: <image>\nWhat? ASSISTANT: A license.</s>USER: Why? ASSISTANT: So.</s>"},
      {"mistral", "[INST] <image>\nWhat? [/INST] A license.</s>[INST] Why? [/INST] So.</s>"}};
  for (const bool is_new : {false, true}) {
    const Tokenizer tokenizer = tokenizer_of(is_new);
    for (const auto& [form, text] : forms) {
      const ChatTokens tokens = encoded({tokenizer, form, "llava"}, kPicture, {3});
      Ids expected = repeated(tokenizer.encode(text), 3);
      expected.insert(expected.begin(), kBegin);
      EXPECT_EQ(tokens.ids, expected) << form;
      ASSERT_EQ(tokens.media.size(), 1U);
      EXPECT_EQ(tokens.ids[tokens.media[0].begin], kImage);
      EXPECT_EQ(tokens.ids[tokens.media[0].begin - 1] == kImage, false);
      EXPECT_EQ(tokens.media[0].count, 3U);
    }
  }
}

/// Only answers with the space before them, and the tokens that end them, are trained. Older files set a
/// space before each text that follows an added token.
TEST(LlavaChats, TrainAnswersAndTheirEnds) {
  const Tokenizer older = tokenizer_of(false);
  const Tokenizer newer = tokenizer_of(true);
  EXPECT_EQ(shown(newer, encoded({newer, "vicuna", "llava"}, kPicture, {2})),
            "<s> USER: <image><image>\nWhat? ASSISTANT:{ A license.</s>}USER: Why? ASSISTANT:{ So.</s>}");
  EXPECT_EQ(shown(older, encoded({older, "vicuna", "llava"}, kPicture, {2})),
            "<s> USER: <image><image> \nWhat? ASSISTANT:{ A license.</s>} USER: Why? ASSISTANT:{ So.</s>}");
  EXPECT_EQ(shown(newer, encoded({newer, "mistral", "llava"}, kPicture, {1})),
            "<s> [INST] <image>\nWhat? [/INST]{ A license.</s>}[INST] Why? [/INST]{ So.</s>}");
  EXPECT_EQ(shown(older, encoded({older, "vicuna", ""}, R"({"text": "of the"})")), "<s>{ of the}");
}

TEST(LlavaChats, HaveSystemTurnsOnlyIfTheDataHaveThem) {
  const Tokenizer tokenizer = tokenizer_of(true);
  const std::string own = R"({"conversations": [{"from": "system", "value": "Be kind."},
      {"from": "human", "value": "Why?"}, {"from": "gpt", "value": "So.", "weight": 0}, {"from": "gpt", "value": "No."}]})";
  EXPECT_EQ(shown(tokenizer, encoded({tokenizer, "vicuna", ""}, own)),
            "<s> Be kind. USER: Why? ASSISTANT: So.</s>ASSISTANT:{ No.</s>}");
  EXPECT_EQ(shown(tokenizer, encoded({tokenizer, "mistral", ""}, own)),
            "<s> <<SYS>>\nBe kind.\n<</SYS>>\n\n[INST] Why? [/INST] So.</s>{ No.</s>}");
}

/// If a normalized </s> is found only after a space, the form still ends answers with it.
TEST(LlavaChats, EndAnswersWithTheToken) {
  json file = json::parse(read_text_file(DFLOP_SOURCE_DIR "/tests/golden/io/tokenizer-llama2.json"));
  for (json& token : file["added_tokens"]) token["normalized"] = true;
  const Tokenizer tokenizer(file.dump(), "t");
  EXPECT_GT(tokenizer.encode("a</s>").size(), 2U);
  const ChatTokens tokens = encoded({tokenizer, "vicuna", ""}, R"({"conversations": [
      {"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]})");
  EXPECT_EQ(tokens.ids.front(), kBegin);
  EXPECT_EQ(tokens.ids.back(), kEnd);
  EXPECT_EQ(tokens.is_trained.back(), 1);
}

TEST(LlavaChats, NeedTheirTokens) {
  const Tokenizer other(DFLOP_SOURCE_DIR "/tests/golden/io/tokenizer-qwen2.json");
  for (const char* form : {"vicuna", "mistral"})
    expect_refused([&] { ChatTokenizer(other, form, ""); }, other.file(), {"the token '<s>'", "found none"});
}

}  // namespace llava_chat_test
}  // namespace dflop::testing
