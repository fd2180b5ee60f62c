// Conversations of lists name the files of their media, in the forms of other trainers.
#include <gtest/gtest.h>

#include "tests/core/input_error.hpp"
#include "traces/tokens/conversation.hpp"

namespace dflop {
namespace listed_conversation_test {

using Texts = std::vector<std::string>;

ListedConversation listed(const std::string& json) {
  return parse_listed_conversation(json, "a.jsonl: line 3");
}

Texts files_of(const std::string& json) {
  const ListedConversation found = listed(json);
  EXPECT_EQ(found.files.size(), found.conversation.media().size());
  Texts paths;
  for (const ListedMedium& file : found.files) {
    EXPECT_TRUE(file.frames.empty());
    paths.push_back(file.path);
  }
  return paths;
}

/// Returns a conversation of LLaVA about `words`, with more keys.
std::string llava(const std::string& keys, const std::string& words) {
  return "{" + keys + R"("conversations": [{"from": "human", "value": ")" + words +
         R"("}, {"from": "gpt", "value": "x"}]})";
}

std::string parts(const std::string& keys, const std::string& content) {
  return "{" + keys + R"("messages": [{"role": "user", "content": [)" + content +
         R"(]}, {"role": "assistant", "content": "x"}]})";
}

TEST(ListedConversations, NameFilesNextToTheConversation) {
  EXPECT_EQ(files_of(llava(R"("image": "a.jpg", )", "<image>")), (Texts{"a.jpg"}));
  EXPECT_EQ(files_of(llava(R"("image": ["a.jpg", "b.jpg"], )", "<image> and <image>")),
            (Texts{"a.jpg", "b.jpg"}));
  EXPECT_EQ(files_of(llava(R"("images": ["a.jpg"], "audios": ["b.wav"], )", "<audio><image>")),
            (Texts{"b.wav", "a.jpg"}));
  EXPECT_EQ(files_of(llava(R"("images": [{"bytes": null, "path": "a.jpg"}], )", "<image>")),
            (Texts{"a.jpg"}));
  EXPECT_EQ(files_of(llava(R"("image": "file:///d/a.jpg", )", "<image>")), (Texts{"/d/a.jpg"}));
  EXPECT_EQ(files_of(llava(R"("videos": ["a.mp4"], )", "<video>")), (Texts{"a.mp4"}));
  for (const char* none :
       {"", R"("image": "", )", R"("image": null, )", R"("images": [], )", R"("images": null, )"})
    EXPECT_EQ(files_of(llava(none, "no picture")), Texts());
}

TEST(ListedConversations, NameFilesInParts) {
  EXPECT_EQ(files_of(parts("", R"({"type": "image", "image": "a.jpg"}, {"type": "text", "text": "<image>"},
                                  {"type": "image_url", "image_url": {"url": "file://b.jpg"}},
                                  {"type": "image_url", "image_url": "c.jpg"}, {"type": "image", "path": "d.jpg"},
                                  {"type": "image", "url": "e.jpg"}, {"type": "audio", "audio_url": "f.wav"})")),
            (Texts{"a.jpg", "b.jpg", "c.jpg", "d.jpg", "e.jpg", "f.wav"}));
  // Parts without a file take the files next to the conversation.
  EXPECT_EQ(files_of(parts(R"("images": ["a.jpg"], )",
                           R"({"type": "image", "image": "b.jpg"}, {"type": "image"})")),
            (Texts{"b.jpg", "a.jpg"}));
}

/// A list of several paths is one video if the conversation has one <video>, and a list inside a list always
/// is. A rate in a part comes before the rate next to the conversation.
TEST(ListedConversations, MayNameTheFramesOfVideos) {
  const auto files = [](const std::string& json) { return listed(json).files; };
  using Files = std::vector<ListedMedium>;
  EXPECT_EQ(files(llava(R"("video": "d", "fps": 0.5, )", "<video>")), (Files{{"d", {}, {0.5}}}));
  EXPECT_EQ(files(llava(R"("video": ["1", "2"], "sample_fps": 3, )", "<video>")),
            (Files{{"", {"1", "2"}, {3, true}}}));
  EXPECT_EQ(files(llava(R"("video": ["1", "2"], )", "<video><video>")), (Files{{"1"}, {"2"}}));
  EXPECT_EQ(files(llava(R"("videos": [["1"], "d"], )", "<video><video>")), (Files{{"", {"1"}}, {"d"}}));
  EXPECT_EQ(files(llava(R"("videos": [["1", "2"]], "fps": null, )", "<video>")), (Files{{"", {"1", "2"}}}));
  EXPECT_EQ(files(parts(
                R"("fps": 4, "videos": ["d"], "images": ["a"], )",
                R"({"type": "video", "video": ["1", "2"], "fps": 1}, {"type": "video"}, {"type": "image"})")),
            (Files{{"", {"1", "2"}, {1}}, {"d", {}, {4}}, {"a"}}));
}

/// LLaMA-Factory stores the system turn next to the conversation.
TEST(ListedConversations, MayHaveTheirSystemTurnNextToThem) {
  const auto turns = [](const std::string& json) { return listed(json).conversation.turns; };
  const std::vector<ChatTurn> with = turns(llava(R"("system": "Be short.", )", "a"));
  ASSERT_EQ(with.size(), 3U);
  EXPECT_EQ(with[0].role, ChatRole::system);
  EXPECT_EQ(with[0].words, (Texts{"Be short."}));
  EXPECT_EQ(turns(llava(R"("system": "", )", "a")).size(), 2U);
  EXPECT_EQ(turns(llava(R"("system": null, )", "a")).size(), 2U);
}

TEST(ListedConversations, RejectWhatIsNoFile) {
  const auto has = [](const std::string& json, const std::string& expected) {
    const std::string said = testing::input_error([&] { listed(json); });
    EXPECT_NE(said.find("a.jsonl: line 3"), std::string::npos) << said;
    EXPECT_NE(said.find(expected), std::string::npos) << json << ": " << said;
  };
  has(llava(R"("image": "https://a.b/c.jpg", )", "<image>"), "found a URL of https: download it");
  has(parts("", R"({"type": "image_url", "image_url": {"url": "http://a.b/c.jpg"}})"), "found a URL of http");
  has(parts("", R"({"type": "image_url", "image_url": {"url": "data:image/png;base64,x"}})"),
      "found a data: URL");
  has(parts("", R"({"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}})"),
      "contents inside a list are not read");
  has(llava(R"("images": [{"bytes": "x", "path": null}], )", "<image>"),
      "contents inside a list are not read");
  has(llava(R"("images": [""], )", "<image>"), "the path of a file");
  has(llava(R"("image": 7, )", "<image>"), "image");
  has(llava(R"("image": "a.jpg", "images": ["a.jpg"], )", "<image>"),
      "expected 'image' or 'images', found both");
}

TEST(ListedConversations, NameTheNumbersOfFilesAndPlaceholders) {
  const auto said = [](const std::string& json) { return testing::input_error([&] { listed(json); }); };
  EXPECT_NE(said(llava("", "<image>"))
                .find("expected 1 file, one for each <image> in the conversation, found 0 in "
                      "'image' or 'images'"),
            std::string::npos)
      << said(llava("", "<image>"));
  EXPECT_NE(said(llava(R"("image": ["a", "b", "c"], )", "<image><image>"))
                .find("expected 2 files, one for each <image> "
                      "in the conversation, found 3"),
            std::string::npos);
}

TEST(ListedConversations, NameTheAcceptedForms) {
  const std::string said = testing::input_error([&] { listed(R"({"instruction": "a", "output": "b"})"); });
  for (const char* part : {"\"conversations\"", "\"messages\"", "LLaVA", "OpenAI", "ms-swift",
                           "LLaMA-Factory", "found keys 'instruction', 'output'"})
    EXPECT_NE(said.find(part), std::string::npos) << said;
  EXPECT_NE(testing::input_error([&] { listed("{}"); }).find("found no key"), std::string::npos);
  EXPECT_NE(testing::input_error([&] { listed("[]"); }).find("a.jsonl: line 3"), std::string::npos);
}

}  // namespace listed_conversation_test
}  // namespace dflop
