// SentencePiece's BPE with byte fallback, as in Llama 2, Vicuna and Mistral.
// tests/golden/io/tokenizer-llama2.json is a small one, trained on the Apache license, and tokens-llama2.json
// has its tokens in Hugging Face's library; tests/golden/make_sentence_piece.py makes both.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/core/input_error.hpp"
#include "traces/text/text_file.hpp"
#include "traces/tokens/tokenizer.hpp"

namespace dflop::testing {
namespace sentence_piece_test {

using Ids = std::vector<std::int32_t>;
using Json = nlohmann::json;

Json golden_json(const std::string& name) {
  return Json::parse(read_text_file(DFLOP_SOURCE_DIR "/tests/golden/io/" + name));
}

/// Returns the golden tokenizer with a pre-tokenizer Metaspace instead of its normalizer.
Json with_metaspace(const std::string& scheme, bool splits) {
  Json json = golden_json("tokenizer-llama2.json");
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", scheme}, {"split", splits}};
  return json;
}

TEST(SentencePieces, GiveTheSameIdsAsHuggingFace) {
  const std::vector<std::pair<std::string, Json>> forms = {{"ids", golden_json("tokenizer-llama2.json")},
                                                           {"first", with_metaspace("first", false)},
                                                           {"always split", with_metaspace("always", true)},
                                                           {"never", with_metaspace("never", false)}};
  const Json cases = golden_json("tokens-llama2.json").at("encoded");
  ASSERT_GT(cases.size(), 100u);
  for (const auto& [form, json] : forms) {
    const Tokenizer tokenizer(json.dump(), form);
    WordCache cache;
    std::size_t others = 0;
    for (const Json& each : cases) {
      const auto text = each.at("text").get<std::string>();
      const auto ids = (each.contains(form) ? each.at(form) : each.at("ids")).get<Ids>();
      others += ids == each.at("ids").get<Ids>() ? 0 : 1;
      EXPECT_EQ(tokenizer.encode(text), ids) << form << ": " << text;
      EXPECT_EQ(tokenizer.encode(text, cache), ids) << form << ": " << text;
    }
    EXPECT_EQ(others > 20, form != "ids") << others;  // the forms differ
  }
}

TEST(SentencePieces, GiveTheSameTextsAsHuggingFace) {
  const Tokenizer tokenizer(golden_json("tokenizer-llama2.json").dump(), "t");
  const Json cases = golden_json("tokens-llama2.json").at("decoded");
  ASSERT_EQ(cases.size(), 60u);
  for (const Json& each : cases) EXPECT_EQ(tokenizer.decode(each.at("ids").get<Ids>()), each.at("text"));
  // The tokens of bytes follow <unk>, <s> and </s>.
  EXPECT_EQ(tokenizer.bytes_of(3 + 0xE6), "\xE6");
  EXPECT_EQ(tokenizer.bytes_of(*tokenizer.id_of("\u2581of")), " of");
  EXPECT_EQ(tokenizer.vocabulary_size(), 702);
}

TEST(SentencePieces, DecodeTheirOwnEncoding) {
  std::mt19937 random(1);
  const std::vector<std::string> pieces = {"the",    " ",          "\n",   "1",    "\u00e9",
                                           "\u4e2d", "\U0001F600", "</s>", "  of", "."};
  const Tokenizer tokenizer(golden_json("tokenizer-llama2.json").dump(), "t");
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (unsigned n = 1 + random() % 20; n > 0; --n) {
      const std::string& piece = pieces[random() % pieces.size()];
      // After an added token, a text gets a space.
      if (!text.ends_with("</s>") || piece == "</s>") text += piece;
    }
    if (text.starts_with("</s>")) continue;
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
}

/// A text that continues words gets no mark before it. After an added token, a normalizer sets one, and a
/// Metaspace "first" does not.
TEST(SentencePieces, ContinueTexts) {
  const Tokenizer prepends(golden_json("tokenizer-llama2.json").dump(), "t");
  const Tokenizer first(with_metaspace("first", false).dump(), "t");
  WordCache cache;
  WordCache other;
  TextPlace at = TextPlace::begin;
  Ids ids = prepends.encode_next("x:", at, cache, "a");
  EXPECT_EQ(at, TextPlace::within);
  for (const std::string text : {" of", "</s>", "x", "<pad>"}) {
    const Ids more = prepends.encode_next(text, at, cache, "a");
    ids.insert(ids.end(), more.begin(), more.end());
    EXPECT_EQ(at, text == "</s>" ? TextPlace::after_token : TextPlace::within) << text;
  }
  EXPECT_EQ(ids, prepends.encode("x: of</s>x<pad>"));
  at = TextPlace::after_token;
  EXPECT_EQ(first.encode_next("of", at, other, "a"), Ids{*first.id_of("of")});
  EXPECT_EQ(first.encode("of"), Ids{*first.id_of("\u2581of")});
  at = TextPlace::after_token;
  EXPECT_EQ(prepends.encode_next("of", at, cache, "a"), prepends.encode("of"));
  at = TextPlace::within;
  EXPECT_EQ(prepends.encode_next(" of", at, cache, "a"), prepends.encode("of"));
  at = TextPlace::after_token;
  prepends.encode_next("a <pad>", at, cache, "a");
  EXPECT_EQ(at, TextPlace::after_token);  // found in the normalized text
}

/// "e " and "e t" are joined before a mark splits them, unless the pre-tokenizer splits there.
TEST(SentencePieces, AreJoinedAcrossMarks) {
  Json json = with_metaspace("never", false);
  json["model"]["vocab"]["e\u2581t"] = 650;
  json["model"]["vocab"]["e\u2581"] = 651;
  Json& vocabulary = json["model"]["vocab"];
  for (auto it = vocabulary.begin(); it != vocabulary.end();)
    it = (it.value() == 650 && it.key() != "e\u2581t") || (it.value() == 651 && it.key() != "e\u2581")
             ? vocabulary.erase(it)
             : std::next(it);
  json["model"]["merges"] = {"e \u2581", "e\u2581 t"};
  EXPECT_EQ(Tokenizer(json.dump(), "t").encode("e t"), Ids{650});
  json["pre_tokenizer"]["split"] = true;
  EXPECT_EQ(Tokenizer(json.dump(), "t").encode("e t").size(), 3u);
}

/// Searching all pairs for each join would take about 10^10 steps here.
TEST(SentencePieces, EncodeTextsOfAnyLength) {
  const Tokenizer tokenizer(golden_json("tokenizer-llama2.json").dump(), "t");
  std::string text;
  while (text.size() < 300'000) text += "of the License \u65e5 ";
  std::string bytes;
  for (const std::int32_t id : tokenizer.encode(text)) bytes += tokenizer.bytes_of(id);
  EXPECT_TRUE(bytes == " " + text);
}

/// An Edit of a tokenizer.json, and the content of the error that it causes.
struct Edit {
  std::function<void(Json&)> edit;
  std::string key;
  std::string words;
};

void expect_refusals(const Json& json, const std::vector<Edit>& edits) {
  for (const Edit& edit : edits) {
    Json changed = json;
    edit.edit(changed);
    const std::string error = input_error([&] { Tokenizer(changed.dump(), "t.json"); });
    EXPECT_EQ(error.rfind("t.json: key '" + edit.key + "': ", 0), 0u) << error << " of " << edit.key;
    EXPECT_NE(error.find(edit.words), std::string::npos) << error;
  }
}

TEST(SentencePieces, RejectOtherKindsByKey) {
  const std::vector<Edit> edits = {
      {[](Json& j) { j["model"]["type"] = "Unigram"; }, "model.type", "\"BPE\""},
      {[](Json& j) { j["model"]["byte_fallback"] = false; }, "model.byte_fallback", "expected true"},
      {[](Json& j) { j["model"].erase("byte_fallback"); }, "model.byte_fallback", "found none"},
      {[](Json& j) { j["model"]["vocab"].erase("<0x0A>"); }, "model.vocab", "'<0x0A>'"},
      {[](Json& j) {
         j["normalizer"] = {{"type", "NFC"}};
       },
       "normalizer.type", "\"Sequence\""},
      {[](Json& j) { j["normalizer"] = nullptr; }, "normalizer", "found null"},
      {[](Json& j) { j["normalizer"]["normalizers"].erase(0); }, "normalizer.normalizers", "found 1"},
      {[](Json& j) { j["normalizer"]["normalizers"][0]["prepend"] = "_"; },
       "normalizer.normalizers[0].prepend", "found \"_\""},
      {[](Json& j) { j["normalizer"]["normalizers"][1]["content"] = "_"; },
       "normalizer.normalizers[1].content", "found \"_\""},
      {[](Json& j) { j["normalizer"]["normalizers"][1]["pattern"]["String"] = "\t"; },
       "normalizer.normalizers[1].pattern.String", "expected \" \""},
      {[](Json& j) { j["decoder"]["type"] = "ByteLevel"; }, "decoder.type", "\"Sequence\""},
      {[](Json& j) { j["decoder"]["decoders"][1]["type"] = "WordPiece"; }, "decoder.decoders[1].type",
       "\"ByteFallback\""},
      {[](Json& j) { j["decoder"]["decoders"][3]["stop"] = 1; }, "decoder.decoders[3].stop", "expected 0"}};
  expect_refusals(golden_json("tokenizer-llama2.json"), edits);
  const std::vector<Edit> of_metaspace = {
      {[](Json& j) { j["pre_tokenizer"]["replacement"] = "_"; }, "pre_tokenizer.replacement", "found \"_\""},
      {[](Json& j) { j["pre_tokenizer"]["prepend_scheme"] = "last"; }, "pre_tokenizer.prepend_scheme",
       "\"last\""},
      {[](Json& j) {
         j["normalizer"] = {{"type", "NFC"}};
       },
       "normalizer", "expected null"}};
  expect_refusals(with_metaspace("first", true), of_metaspace);
}

/// Older files say only whether a text gets a mark before it.
TEST(SentencePieces, ReadMetaspacesOfOlderFiles) {
  Json json = with_metaspace("always", true);
  json["pre_tokenizer"].erase("prepend_scheme");
  json["pre_tokenizer"].erase("split");
  const std::string text = "of the License";
  EXPECT_EQ(Tokenizer(json.dump(), "t").encode(text),
            Tokenizer(with_metaspace("always", true).dump(), "t").encode(text));
  json["pre_tokenizer"]["add_prefix_space"] = false;
  EXPECT_EQ(Tokenizer(json.dump(), "t").encode(text),
            Tokenizer(with_metaspace("never", true).dump(), "t").encode(text));
}

}  // namespace sentence_piece_test
}  // namespace dflop::testing
