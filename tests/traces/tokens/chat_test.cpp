#include "traces/tokens/chat.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/traces/file_fixtures.hpp"
#include "traces/text/text_file.hpp"

namespace dflop::testing {
namespace chat_test {

using Ids = std::vector<std::int32_t>;

/// A golden tokenizer: letters have ids 0 to 255, the result of merge i has id 256 + i, and its added tokens
/// are 700 to 705. More added tokens follow them.
Tokenizer with_added(const std::string& name, const std::vector<std::string>& added) {
  const std::string path = DFLOP_SOURCE_DIR "/tests/golden/io/tokenizer-" + name + ".json";
  auto json = nlohmann::json::parse(read_text_file(path));
  int id = 706;
  for (const std::string& content : added)
    json["added_tokens"].push_back({{"id", id++}, {"content", content}});
  return {json.dump(), name};
}

Ids joined(std::initializer_list<Ids> parts) {
  Ids all;
  for (const Ids& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// The ids of these words follow from the merges, in the order of the list:
// "user"       er; u s er
// "assistant"  is, an, ss; a ss is t an t
// "system"     st; s y st e m
// "on", "or" and "of" are one merge each.
const Ids kUser = {84, 82, 266};
const Ids kAssistant = {64, 477, 284, 83, 302, 83};
const Ids kSystem = {82, 88, 389, 68, 76};
constexpr std::int32_t kOn = 261, kOr = 259, kOf = 497;
constexpr std::int32_t kLine = 198, kTwoLines = 312;
constexpr std::int32_t kStart = 701, kEnd = 702;  // <|im_start|>, <|im_end|>

/// Only the tokens marked in `expected` are trained.
void expect_tokens(const ChatTokens& tokens, const std::vector<std::pair<Ids, bool>>& expected) {
  Ids ids;
  std::vector<std::uint8_t> is_trained;
  for (const auto& [part, trained] : expected) {
    ids.insert(ids.end(), part.begin(), part.end());
    is_trained.insert(is_trained.end(), part.size(), trained ? 1 : 0);
  }
  EXPECT_EQ(tokens.ids, ids);
  EXPECT_EQ(tokens.is_trained, is_trained);
}

ChatTokens encoded(const ChatTokenizer& chat, const std::string& json,
                   const std::vector<std::int64_t>& counts = {}) {
  WordCache cache;
  return chat.encode(parse_conversation(json, "a.json"), counts, cache, "a");
}

const std::string kTwoAnswers = R"({"conversations": [
    {"from": "human", "value": "on"}, {"from": "gpt", "value": "or"},
    {"from": "human", "value": "of"}, {"from": "gpt", "value": "on"}]})";

TEST(Chats, TrainAnswersAndTheirEndsInChatml) {
  const Tokenizer tokenizer = with_added("qwen2", {});
  const Ids asked = joined({{kStart}, kUser, {kLine}});
  const Ids answered = joined({{kEnd, kLine, kStart}, kAssistant, {kLine}});
  expect_tokens(encoded({tokenizer, "chatml", ""}, kTwoAnswers),
                {{joined({asked, {kOn}, answered}), false},
                 {{kOr, kEnd}, true},
                 {joined({{kLine}, asked, {kOf}, answered}), false},
                 {{kOn, kEnd}, true},
                 {{kLine}, false}});
}

/// Qwen's template starts conversations that have no system turn with one of its own.
TEST(Chats, BeginWithTheFormsSystem) {
  const Tokenizer tokenizer = with_added("qwen2", {});
  const ChatTokenizer chatml(tokenizer, "chatml", "");
  const ChatTokenizer qwen2(tokenizer, "qwen2", "");
  // "You", " are", " a", " helpful" (Ġh e l p f u l), " assistant" (Ġa, is, an, Ġas; Ġas s is t an t), "."
  const Ids line = {309, 506, 260, 438, 68, 75, 79, 69, 84, 75, 357, 82, 284, 83, 302, 83, 13};
  const ChatTokens plain = encoded(chatml, kTwoAnswers);
  EXPECT_EQ(encoded(qwen2, kTwoAnswers).ids,
            joined({{kStart}, kSystem, {kLine}, line, {kEnd, kLine}, plain.ids}));
  const std::string own = replaced(kTwoAnswers, "[", R"([{"from": "system", "value": "on"},)");
  EXPECT_EQ(encoded(qwen2, own).ids, joined({{kStart}, kSystem, {kLine, kOn, kEnd, kLine}, plain.ids}));
  const ChatTokenizer qwen2_5(tokenizer, "qwen2.5", "");
  const Ids longer = tokenizer.encode(
      "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n");
  EXPECT_EQ(encoded(qwen2_5, kTwoAnswers).ids, joined({longer, plain.ids}));
}

TEST(Chats, HaveHeadersInLlama3) {
  const Tokenizer tokenizer =
      with_added("llama3", {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"});
  const ChatTokenizer chat(tokenizer, "llama3", "");
  const Ids head = joined({{706, 707}, kUser, {708, kTwoLines, kOn, 709, 707}, kAssistant, {708, kTwoLines}});
  const std::string json =
      R"({"messages": [{"role": "user", "content": " on\n"}, {"role": "assistant", "content": "\n or "}]})";
  expect_tokens(encoded(chat, json), {{head, false}, {{kOr, 709}, true}});
  expect_tokens(encoded(chat, R"({"text": "or"})"), {{{706}, false}, {{kOr}, true}});
}

/// Qwen3's template writes an empty thought before the last answer and removes the thoughts of earlier ones.
TEST(Chats, ThinkInQwen3) {
  const Tokenizer tokenizer = with_added("qwen2", {"<think>", "</think>"});
  const ChatTokenizer chat(tokenizer, "qwen3", "");
  const Ids asked = joined({{kStart}, kUser, {kLine}});
  const Ids answered = joined({{kEnd, kLine, kStart}, kAssistant, {kLine}});
  const Ids empty = {706, kTwoLines, 707, kTwoLines};
  expect_tokens(encoded(chat, kTwoAnswers), {{joined({asked, {kOn}, answered}), false},
                                             {{kOr, kEnd}, true},
                                             {joined({{kLine}, asked, {kOf}, answered, empty}), false},
                                             {{kOn, kEnd}, true},
                                             {{kLine}, false}});
  const std::string thinks = R"({"conversations": [
      {"from": "human", "value": "on"}, {"from": "gpt", "value": "<think>\nof\n</think>\n\nor"},
      {"from": "human", "value": "of"}, {"from": "gpt", "value": "<think>or</think>on"}]})";
  expect_tokens(encoded(chat, thinks), {{joined({asked, {kOn}, answered}), false},
                                        {{kOr, kEnd}, true},
                                        {joined({{kLine}, asked, {kOf}, answered}), false},
                                        {{706, kLine, kOr, kLine, 707, kTwoLines, kOn, kEnd}, true},
                                        {{kLine}, false}});
  // An empty thought ends in an empty line, so that an answer loses the lines before it.
  const std::string lines = R"({"conversations": [
      {"from": "human", "value": "on"}, {"from": "gpt", "value": "\n\nor"}]})";
  expect_tokens(encoded(chat, lines),
                {{joined({asked, {kOn}, answered, empty}), false}, {{kOr, kEnd}, true}, {{kLine}, false}});
  // ChatML itself keeps all words.
  EXPECT_EQ(encoded({tokenizer, "chatml", ""}, thinks).ids.size(), encoded(chat, thinks).ids.size() + 6 - 3);
}

/// Only answers to the last question think: each of them its own thought, and the last one an empty one if it
/// has none. A tool's response is no question. Without a question, no answer thinks.
TEST(Chats, ThinkOnlyAfterTheLastQuestionInQwen3) {
  const Tokenizer tokenizer = with_added("qwen2", {"<think>", "</think>"});
  const ChatTokenizer chat(tokenizer, "qwen3", "");
  const auto text = [&](const std::vector<std::pair<std::string, std::string>>& turns) {
    nlohmann::json json = {{"messages", nlohmann::json::array()}};
    for (const auto& [role, words] : turns) json["messages"].push_back({{"role", role}, {"content", words}});
    return tokenizer.decode(encoded(chat, json.dump()).ids);
  };
  const std::string question = "<|im_start|>user\non<|im_end|>\n";
  const auto answer = [](const std::string& words) {
    return "<|im_start|>assistant\n" + words + "<|im_end|>\n";
  };
  const std::string thinks = "<think>of</think>or";
  const std::string thought = "<think>\nof\n</think>\n\nor";
  const std::string empty = "<think>\n\n</think>\n\non";
  EXPECT_EQ(text({{"user", "on"}, {"assistant", thinks}, {"assistant", "on"}}),
            question + answer(thought) + answer(empty));
  EXPECT_EQ(text({{"user", "on"}, {"assistant", "<think></think>or"}, {"assistant", "on"}}),
            question + answer("or") + answer(empty));
  EXPECT_EQ(text({{"user", "on"}, {"assistant", thinks}, {"user", "on"}}),
            question + answer("or") + question);
  EXPECT_EQ(text({{"assistant", thinks}, {"assistant", "on"}}), answer("or") + answer("on"));
  const std::string response = "<tool_response>of</tool_response>";
  EXPECT_EQ(text({{"user", "on"}, {"assistant", thinks}, {"user", response}, {"assistant", "on"}}),
            question + answer(thought) + "<|im_start|>user\n" + response + "<|im_end|>\n" + answer(empty));
}

TEST(Chats, HaveOnlyTheirTextInPlain) {
  const Tokenizer tokenizer = with_added("qwen2", {});
  const ChatTokenizer chat(tokenizer, "plain", "");
  expect_tokens(encoded(chat, kTwoAnswers), {{{kOn}, false}, {{kOr}, true}, {{kOf}, false}, {{kOn}, true}});
  expect_tokens(encoded(chat, R"({"text": "or"})"), {{{kOr}, true}});
}

TEST(Chats, RepeatAMediumsToken) {
  const Tokenizer tokenizer =
      with_added("qwen2", {"<|video_pad|>", "<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>", "<img>", "</img>",
                           "<IMG_CONTEXT>", "<image>", "<video>"});
  struct Case {
    std::string family;
    std::string medium;
    Ids begin;
    std::int32_t token;
    Ids end;
  };
  const std::vector<Case> cases = {{"qwen2-vl", "image", {703}, 705, {704}},
                                   {"qwen2-vl", "video", {703}, 706, {704}},
                                   {"qwen2.5-vl", "image", {703}, 705, {704}},
                                   {"qwen2.5-vl", "video", {703}, 706, {704}},
                                   {"qwen2-audio", "audio", {708}, 707, {709}},
                                   {"internvl2.5", "image", {710}, 712, {711}},
                                   {"llava", "image", {}, 713, {}},
                                   {"llava-ov", "image", {}, 713, {}},
                                   {"llava-ov", "video", {}, 714, {}}};
  for (const Case& each : cases) {
    SCOPED_TRACE(each.family + " " + each.medium);
    const std::string mark = "<" + each.medium + ">";
    const ChatTokens tokens =
        encoded({tokenizer, "plain", each.family}, R"({"text": "on)" + mark + mark + R"(of"})", {3, 1});
    expect_tokens(tokens, {{{kOn}, true},
                           {joined({each.begin, {each.token, each.token, each.token}, each.end}), false},
                           {joined({each.begin, {each.token}, each.end}), false},
                           {{kOf}, true}});
    const std::size_t around = each.begin.size();
    const ChatMedium medium = *from_string<ChatMedium>(each.medium);
    EXPECT_EQ(tokens.media, (std::vector<MediumPlace>{{medium, 1 + around, 3}, {medium, 4 + 3 * around, 1}}));
  }
}

TEST(Chats, KeepMediaInPlace) {
  const Tokenizer tokenizer = with_added("qwen2", {});
  const std::string json = R"({"conversations": [
      {"from": "human", "value": "<image>\nof"}, {"from": "gpt", "value": "or<image>"}]})";
  const ChatTokens tokens = encoded({tokenizer, "chatml", "qwen2.5-vl"}, json, {2, 1});
  // 1 + 3 + 1 tokens of the frame and the one that begins the image come before the first image token.
  const Ids asked = joined({{kStart}, kUser, {kLine, 703, 705, 705, 704, kLine, kOf, kEnd, kLine, kStart}});
  expect_tokens(tokens, {{joined({asked, kAssistant, {kLine}}), false},
                         {{kOr}, true},
                         {{703, 705, 704}, false},
                         {{kEnd}, true},
                         {{kLine}, false}});
  ASSERT_EQ(tokens.media.size(), 2u);
  EXPECT_EQ(tokens.media[0], (MediumPlace{ChatMedium::image, 6, 2}));
  EXPECT_EQ(tokens.ids[tokens.media[1].begin], 705);
}

TEST(Chats, AreCutAfterMediaAndAfterTrainedTokens) {
  const ChatTokens whole = {
      {1, 2, 2, 2, 3, 5, 5, 5, 4}, {0, 0, 0, 0, 0, 0, 1, 1, 0}, {{ChatMedium::image, 1, 3}}};
  for (std::size_t longest = 0; longest <= 10; ++longest) {
    ChatTokens cut = whole;
    if (longest < 7) {  // the first trained token is the seventh
      expect_refused([&] { cut.cut(longest, "sample 7"); }, "sample 7",
                     {std::to_string(longest), longest < 4 ? "[1, 4) of '<image>'" : "removes all 2"});
      EXPECT_EQ(cut.ids, whole.ids);
      continue;
    }
    cut.cut(longest, "sample 7");
    const auto size = static_cast<std::ptrdiff_t>(std::min<std::size_t>(longest, 9));
    EXPECT_EQ(cut.ids, Ids(whole.ids.begin(), whole.ids.begin() + size));
    EXPECT_EQ(cut.is_trained,
              std::vector<std::uint8_t>(whole.is_trained.begin(), whole.is_trained.begin() + size));
    EXPECT_EQ(cut.media.size(), 1u);
  }
}

TEST(Chats, AreRejectedWithThePlaceOfTheError) {
  const Tokenizer tokenizer = with_added("qwen2", {});
  const ChatTokenizer chat(tokenizer, "plain", "qwen2.5-vl");
  const std::string image = R"({"text": "<image>"})";
  expect_refused([&] { encoded(chat, image, {}); }, "a", {"expected 0 placeholders", "found 1"});
  expect_refused([&] { encoded(chat, image, {1, 1}); }, "a", {"expected 2 placeholders", "found 1"});
  expect_refused([&] { encoded(chat, image, {0}); }, "a", {"at least 1", "found 0"});
  expect_refused([&] { encoded(chat, R"({"text": "<audio>"})", {1}); }, "a", {"<audio>", "qwen2"});
  expect_refused([&] { encoded(chat, R"({"text": "<video>"})", {1}); }, "a", {"<video>", "qwen2"});
  expect_refused([&] { encoded(chat, R"({"text": "on <|image_pad|>"})"); }, "a", {"<|image_pad|>"});
  expect_refused([&] { ChatTokenizer(tokenizer, "chat", ""); }, "", {"chatml, qwen2", "'chat'"});
  expect_refused([&] { ChatTokenizer(tokenizer, "plain", "vl"); }, "", {"qwen2.5-vl", "'vl'"});
  expect_refused([&] { ChatTokenizer(tokenizer, "llama3", ""); }, "qwen2", {"<|begin_of_text|>"});
}

}  // namespace chat_test
}  // namespace dflop::testing
