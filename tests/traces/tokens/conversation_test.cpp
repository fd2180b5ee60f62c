#include "traces/tokens/conversation.hpp"

#include <gtest/gtest.h>

#include "tests/traces/file_fixtures.hpp"

namespace dflop::testing {
namespace conversation_test {

Conversation parsed(const std::string& json) {
  return parse_conversation(json, "a.json");
}

const Conversation kQuestion = {{{ChatRole::system, {"Be short."}, {}},
                                 {ChatRole::user, {"", "\nWhat is this?"}, {ChatMedium::image}},
                                 {ChatRole::assistant, {"A cat."}, {}}},
                                false};

TEST(Conversations, AreReadInLlavasForm) {
  EXPECT_EQ(parsed(R"({"id": 7, "image": "a.jpg", "conversations": [
      {"from": "system", "value": "Be short."},
      {"from": "human", "value": "<image>\nWhat is this?"},
      {"from": "gpt", "value": "A cat."}]})"),
            kQuestion);
}

TEST(Conversations, AreReadInMessagesForm) {
  EXPECT_EQ(parsed(R"({"messages": [
      {"role": "system", "content": "Be short."},
      {"role": "user", "content": [{"type": "image", "image": "a.jpg"}, {"type": "text", "text": "\nWhat is this?"}]},
      {"role": "assistant", "content": [{"type": "text", "text": "A "}, {"type": "text", "text": "cat."}]}]})"),
            kQuestion);
}

TEST(Conversations, HaveNoPlaceholdersInTextsOfAList) {
  const Conversation talk = parsed(R"({"messages": [
      {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is <image> in HTML?"}]},
      {"role": "assistant", "content": "No tag."}]})");
  EXPECT_EQ(talk.media().size(), 1U);
  EXPECT_EQ(talk.turns[0].words, (std::vector<std::string>{"", "What is <image> in HTML?"}));
}

TEST(Conversations, MayHaveAnswersThatAreNotTrained) {
  const Conversation talk = parsed(R"({"messages": [{"role": "user", "content": "a", "weight": null},
      {"role": "assistant", "content": "b", "weight": 0}, {"role": "assistant", "content": "c", "weight": 1}]})");
  EXPECT_TRUE(talk.turns[0].is_trained);
  EXPECT_FALSE(talk.turns[1].is_trained);
  EXPECT_TRUE(talk.turns[2].is_trained);
  expect_refused([] { parsed(R"({"messages": [{"role": "assistant", "content": "b", "weight": 0.5}]})"); },
                 "a.json: key 'messages[0].weight'", {"0.5"});
}

TEST(Conversations, MayBeATextForPretraining) {
  const Conversation text = parsed(R"({"text": "One <image><video> and <audio>"})");
  const Conversation expected = {{{ChatRole::assistant,
                                   {"One ", "", " and ", ""},
                                   {ChatMedium::image, ChatMedium::video, ChatMedium::audio}}},
                                 true};
  EXPECT_EQ(text, expected);
  EXPECT_EQ(text.media(), (std::vector<ChatMedium>{ChatMedium::image, ChatMedium::video, ChatMedium::audio}));
}

TEST(Conversations, HavePlaceholdersOfExactlyTheseNames) {
  EXPECT_EQ(parsed(R"({"text": "<<image>> <images> <Image> <image <"})").turns[0].words,
            (std::vector<std::string>{"<", "> <images> <Image> <image <"}));
}

TEST(Conversations, AreRejectedNamingTheWrongKey) {
  const std::string answer = R"({"role": "assistant", "content": "a"})";
  expect_refused([&] { parsed("{}"); }, "a.json", {"'conversations', 'messages' and 'text'", "found 0"});
  expect_refused([&] { parsed(R"({"text": "a", "messages": []})"); }, "a.json", {"found 2"});
  expect_refused([&] { parsed(R"({"messages": []})"); }, "a.json: key 'messages'", {"assistant"});
  expect_refused([&] { parsed(R"({"messages": [{"role": "user", "content": "a"}]})"); },
                 "a.json: key 'messages'", {"assistant"});
  expect_refused([&] { parsed(R"({"messages": [{"role": "tool", "content": "a"}]})"); },
                 "a.json: key 'messages[0].role'", {"system, user", "tool"});
  expect_refused([&] { parsed(R"({"messages": [)" + answer + R"(, {"role": "system", "content": "a"}]})"); },
                 "a.json: key 'messages[1].role'", {"before all others"});
  expect_refused([&] { parsed(R"({"messages": [{"role": "user", "content": [{"type": "pdf"}]}]})"); },
                 "a.json: key 'messages[0].content[0].type'", {"text, image", "pdf"});
  expect_refused([&] { parsed(R"({"text": 3})"); }, "a.json: key 'text'", {"string"});
  EXPECT_EQ(error_of([&] { parsed("[1]"); }).kind(), ErrorKind::input);
}

}  // namespace conversation_test
}  // namespace dflop::testing
