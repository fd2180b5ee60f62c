#include "traces/tokens/tokenizer.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/core/input_error.hpp"
#include "traces/text/text_file.hpp"

namespace dflop::testing {
namespace tokenizer_test {

std::string golden(const std::string& name) {
  return DFLOP_SOURCE_DIR "/tests/golden/io/" + name;
}

TEST(Tokenizers, GiveTheSameIdsAsHuggingFace) {
  for (const std::string family : {"qwen2", "llama3"}) {
    const Tokenizer tokenizer(golden("tokenizer-" + family + ".json"));
    const auto cases = nlohmann::json::parse(read_text_file(golden("tokens-" + family + ".json")));
    ASSERT_GT(cases.size(), 100u);
    WordCache cache;
    for (const auto& each : cases) {
      const auto text = each.at("text").get<std::string>();
      const auto ids = each.at("ids").get<std::vector<std::int32_t>>();
      EXPECT_EQ(tokenizer.encode(text), ids) << family << ": " << text;
      EXPECT_EQ(tokenizer.encode(text, cache), ids) << family << ": " << text;
    }
  }
}

nlohmann::json golden_json(const std::string& family) {
  return nlohmann::json::parse(read_text_file(golden("tokenizer-" + family + ".json")));
}

/// Files store merges as "a b" or, if transformers 5 wrote them, as ["a", "b"].
TEST(Tokenizers, ReadMergesInBothForms) {
  for (const std::string family : {"qwen2", "llama3"}) {
    nlohmann::json texts = golden_json(family);
    nlohmann::json pairs = texts;
    for (std::size_t m = 0; m < texts["model"]["merges"].size(); ++m) {
      nlohmann::json& text = texts["model"]["merges"][m];
      nlohmann::json& pair = pairs["model"]["merges"][m];
      if (text.is_array()) {
        text = text[0].get<std::string>() + " " + text[1].get<std::string>();
      } else {
        const auto both = text.get<std::string>();
        pair = {both.substr(0, both.find(' ')), both.substr(both.find(' ') + 1)};
      }
    }
    const Tokenizer of_texts(texts.dump(), "texts");
    const Tokenizer of_pairs(pairs.dump(), "pairs");
    const std::string words = read_text_file(DFLOP_SOURCE_DIR "/CONTRIBUTING.md");
    EXPECT_EQ(of_texts.encode(words), of_pairs.encode(words));
  }
}

/// The folder of a Qwen2 model without tokenizer.json, as transformers' Qwen2Tokenizer saves it.
class VocabularyFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::path(::testing::TempDir()) /
        (std::string("dflop_vocabulary_") + ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    const nlohmann::json whole = golden_json("qwen2");
    write("vocab.json", whole["model"]["vocab"].dump());
    std::string merges = "#version: 0.2\n";
    for (const auto& merge : whole["model"]["merges"])
      merges += merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
    write("merges.txt", merges);
    for (const auto& token : whole["added_tokens"]) {
      nlohmann::json of_config = token;
      of_config.erase("id");
      config_["added_tokens_decoder"][std::to_string(token["id"].get<int>())] = of_config;
      added_[token["content"].get<std::string>()] = token["id"];
    }
    config_["tokenizer_class"] = "Qwen2Tokenizer";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const {
    write_file_atomically(path(name), text);
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  Tokenizer read() const { return Tokenizer(path("tokenizer.json")); }

  void expect_same() const {
    const Tokenizer from_files = read();
    const Tokenizer whole(golden("tokenizer-qwen2.json"));
    EXPECT_EQ(from_files.vocabulary_size(), whole.vocabulary_size());
    const auto cases = nlohmann::json::parse(read_text_file(golden("tokens-qwen2.json")));
    for (const auto& each : cases) {
      const auto text = each.at("text").get<std::string>();
      EXPECT_EQ(from_files.encode(text), each.at("ids").get<std::vector<std::int32_t>>()) << text;
    }
    const std::string words = read_text_file(DFLOP_SOURCE_DIR "/CONTRIBUTING.md") + "<|im_end|><|im_start|>x";
    EXPECT_EQ(from_files.encode(words), whole.encode(words));
    EXPECT_EQ(from_files.decode(whole.encode(words)), words);
  }

  std::filesystem::path folder_;
  nlohmann::json config_;
  nlohmann::json added_;
};

TEST_F(VocabularyFiles, EqualTheTokenizersFile) {
  write("tokenizer_config.json", config_.dump());
  expect_same();
  write("added_tokens.json", added_.dump());
  expect_same();
  std::filesystem::remove(path("tokenizer_config.json"));
  expect_same();
}

TEST_F(VocabularyFiles, AreReadOnlyWithoutATokenizersFile) {
  nlohmann::json other = golden_json("qwen2");
  other["added_tokens"] = nlohmann::json::array();
  write("added_tokens.json", added_.dump());
  EXPECT_TRUE(read().id_of("<|im_end|>"));
  write("tokenizer.json", other.dump());
  EXPECT_FALSE(read().id_of("<|im_end|>"));
}

TEST_F(VocabularyFiles, AreRejectedWithFileAndLineIfTheyAreDamaged) {
  const auto refused = [&](const std::string& place, const std::string& words) {
    const std::string error = input_error([&] { read(); });
    EXPECT_EQ(error.substr(0, place.size()), place);
    EXPECT_NE(error.find(words), std::string::npos) << error;
  };
  const std::string merges = read_text_file(path("merges.txt"));
  write("merges.txt", "#version: 0.2\nab\n");
  refused(path("merges.txt") + ":2", "two tokens with a space");
  write("merges.txt", "\r\n\nnone a\n");
  refused(path("merges.txt") + ":3", "tokens of the vocabulary, found 'none'");
  write("merges.txt", merges);
  config_["tokenizer_class"] = "GPT2Tokenizer";
  write("tokenizer_config.json", config_.dump());
  refused(path("tokenizer_config.json") + ": key 'tokenizer_class'", "Qwen2Tokenizer");
  config_["tokenizer_class"] = "Qwen2TokenizerFast";
  config_["added_tokens_decoder"]["x"] = config_["added_tokens_decoder"]["700"];
  write("tokenizer_config.json", config_.dump());
  refused(path("tokenizer_config.json") + ": key 'added_tokens_decoder.x'", "an id");
  std::filesystem::remove(path("merges.txt"));
  refused(path("tokenizer.json"), "");
}

TEST(Tokenizers, DecodeTheirOwnEncoding) {
  std::mt19937 random(1);
  const std::vector<std::string> pieces = {"the",    " ",          "\n",         "1",  "\u00e9",
                                           "\u4e2d", "\U0001F600", "<|im_end|>", "'s", "."};
  for (const std::string family : {"qwen2", "llama3"}) {
    const Tokenizer tokenizer(golden("tokenizer-" + family + ".json"));
    for (int round = 0; round < 200; ++round) {
      std::string text;
      for (unsigned n = random() % 20; n > 0; --n) text += pieces[random() % pieces.size()];
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
    }
  }
}

/// The first of the three bytes of U+4E2D by itself is no character, nor are the last two.
TEST(Tokenizers, DecodePartsOfCharactersAsReplacements) {
  const Tokenizer tokenizer(golden("tokenizer-qwen2.json"));
  const auto byte = [&](const char* letter) { return *tokenizer.id_of(letter); };
  // GPT-2's letters for the bytes E4, B8, AD: U+00E4, U+00B8 and, as AD is not printable, U+0143.
  const std::vector<std::int32_t> ids = {byte("\u00e4"), byte("\u00b8"), byte("\u0143")};
  EXPECT_EQ(tokenizer.decode(ids), "\u4e2d");
  EXPECT_EQ(tokenizer.decode({ids.data(), 1}), "\uFFFD");
  EXPECT_EQ(tokenizer.decode({ids.data() + 1, 2}), "\uFFFD\uFFFD");
  const std::string error = input_error([&] { tokenizer.decode(std::vector<std::int32_t>{1 << 20}); });
  EXPECT_NE(error.find("tokenizer-qwen2.json"), std::string::npos) << error;
  EXPECT_NE(error.find("found 1048576"), std::string::npos) << error;
}

/// A tokenizer that knows all bytes, joins a with a and aa with aa, and has no merges that make its token
/// "abc".
nlohmann::json small_tokenizer() {
  nlohmann::json json = golden_json("qwen2");
  nlohmann::json vocabulary;
  for (const auto& [token, id] : json["model"]["vocab"].items()) {
    const bool is_byte = static_cast<unsigned char>(token[0]) < 0x80 ? token.size() == 1 : token.size() == 2;
    if (is_byte) vocabulary[token] = vocabulary.size();
  }
  EXPECT_EQ(vocabulary.size(), 256u);
  vocabulary["aa"] = 300;
  vocabulary["aaaa"] = 301;
  vocabulary["abc"] = 302;
  json["model"]["vocab"] = vocabulary;
  json["model"]["merges"] = {"a a", "aa aa"};
  json["added_tokens"] = nlohmann::json::array();
  return json;
}

/// No merge produces the token "abc".
TEST(Tokenizers, TakeWholeWordsIfMergesAreIgnored) {
  nlohmann::json json = small_tokenizer();
  EXPECT_EQ(Tokenizer(json.dump(), "t").encode("abc").size(), 3u);
  json["model"]["ignore_merges"] = true;
  const Tokenizer whole(json.dump(), "t");
  EXPECT_EQ(whole.encode("abc"), std::vector<std::int32_t>{302});
  EXPECT_EQ(whole.encode("abcd").size(), 4u);
  EXPECT_EQ(whole.encode("aaa"), (std::vector<std::int32_t>{300, whole.encode("a")[0]}));
}

/// Searching all pairs for each join would take about 10^10 steps here.
TEST(Tokenizers, EncodeWordsOfAnyLength) {
  const Tokenizer tokenizer(small_tokenizer().dump(), "t");
  const std::vector<std::int32_t> ids = tokenizer.encode(std::string(400'002, 'a'));
  ASSERT_EQ(ids.size(), 100'001u);  // 100,000 of "aaaa" and one of "aa"
  for (std::size_t i = 0; i < 100'000; ++i) ASSERT_EQ(ids[i], 301) << i;
  EXPECT_EQ(ids.back(), 300);
}

/// A text may consist of a single class of letters: ICU's limits on memory and steps of a search are high
/// enough for it.
TEST(Tokenizers, EncodeLongRunsOfOneClass) {
  for (const std::string family : {"qwen2", "llama3"}) {
    const Tokenizer tokenizer(golden("tokenizer-" + family + ".json"));
    for (const std::string unit : {" ", "\n", "\r\n", "\t", "7", ".", "\u3000", " \n", "'", "\u4e2d"}) {
      std::string text;
      while (text.size() < 500'000) text += unit;
      std::string bytes;
      for (const std::int32_t id : tokenizer.encode(text)) bytes += tokenizer.bytes_of(id);
      EXPECT_TRUE(bytes == text) << family << ", run of '" << unit << "'";
    }
  }
}

/// An Edit of a tokenizer.json, and the content of the error that it causes.
struct Edit {
  std::function<void(nlohmann::json&)> edit;
  std::string key;
  std::string words;
};

TEST(Tokenizers, RejectOtherKindsByKey) {
  using Json = nlohmann::json;
  const std::string split = "pre_tokenizer.pretokenizers";
  const std::vector<Edit> edits = {
      {[](Json& j) { j["model"]["type"] = "Unigram"; }, "model.type", "\"BPE\""},
      {[](Json& j) { j["model"]["dropout"] = 0.1; }, "model.dropout", "null"},
      {[](Json& j) { j["model"]["byte_fallback"] = true; }, "model.byte_fallback", "false"},
      {[](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }, "model.end_of_word_suffix", "null"},
      {[](Json& j) { j["model"]["vocab"]["a"] = -1; }, "model.vocab.a", "-1"},
      {[](Json& j) { j["model"]["vocab"].erase("a"); }, "model.vocab", "byte 0x61"},
      {[](Json& j) { j["model"]["merges"][1] = "aaaa"; }, "model.merges[1]", "two tokens"},
      {[](Json& j) {
         j["model"]["merges"][1] = {"a", "a", "a"};
       },
       "model.merges[1]", "found 3"},
      {[](Json& j) { j["model"]["merges"][1] = "a nothere"; }, "model.merges[1]", "'nothere'"},
      {[](Json& j) { j["model"]["merges"][1] = " a"; }, "model.merges[1]", "found ''"},
      {[](Json& j) { j["model"]["merges"][1] = "b b"; }, "model.merges[1]", "'bb'"},
      {[](Json& j) {
         j["normalizer"] = {{"type", "NFKC"}};
       },
       "normalizer.type", "\"NFC\""},
      {[](Json& j) { j["decoder"]["type"] = "Metaspace"; }, "decoder.type", "\"ByteLevel\""},
      {[](Json& j) {
         j["pre_tokenizer"] = {{"type", "ByteLevel"}};
       },
       "pre_tokenizer.type", "\"Sequence\", \"Metaspace\""},
      {[](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed"; },
       split + "[0].behavior", "\"Isolated\""},
      {[](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(a"; },
       split + "[0].pattern.Regex", "regular expression"},
      {[](Json& j) { j["pre_tokenizer"]["pretokenizers"][1]["use_regex"] = true; }, split + "[1].use_regex",
       "false"},
      {[](Json& j) {
         j["added_tokens"] = {{{"id", 400}, {"content", ""}}};
       },
       "added_tokens[0].content", "not empty"},
      {[](Json& j) {
         j["added_tokens"] = {{{"id", 400}, {"content", "x"}, {"lstrip", true}}};
       },
       "added_tokens[0].lstrip", "false"},
      {[](Json& j) {
         j["added_tokens"] = {{{"id", 400}, {"content", "aa"}}};
       },
       "added_tokens[0].id", "expected 300"},
      {[](Json& j) {
         j["added_tokens"] = {{{"id", 300}, {"content", "x y"}}};
       },
       "", "id 300"},
      {[](Json& j) { j.erase("model"); }, "model", "found none"},
  };
  for (const Edit& edit : edits) {
    nlohmann::json json = small_tokenizer();
    edit.edit(json);
    const std::string error = input_error([&] { Tokenizer(json.dump(), "t.json"); });
    const std::string place = edit.key.empty() ? "t.json: " : "t.json: key '" + edit.key + "': ";
    EXPECT_EQ(error.rfind(place, 0), 0u) << error << " of " << edit.key;
    EXPECT_NE(error.find(edit.words), std::string::npos) << error;
  }
}

TEST(Tokenizers, NameTheFirstByteThatIsNotUtf8) {
  const Tokenizer tokenizer(golden("tokenizer-qwen2.json"));
  const std::string error = input_error([&] { tokenizer.encode("ab\xFFz"); });
  EXPECT_NE(error.find("0xff"), std::string::npos) << error;
  EXPECT_NE(error.find("offset 2"), std::string::npos) << error;
}

}  // namespace tokenizer_test
}  // namespace dflop::testing
