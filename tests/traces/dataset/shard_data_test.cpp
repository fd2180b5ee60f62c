// Tars become samples whose shapes, read from headers, equal the shapes of the decoded contents.
#include "traces/dataset/shard_data.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.hpp"
#include "tests/core/input_error.hpp"
#include "tests/traces/dataset/shard_folder.hpp"
#include "traces/families/hugging_face.hpp"
#include "traces/text/text_file.hpp"
#include "traces/tokens/chat_template.hpp"

namespace dflop {
namespace shard_data_test {

const std::string kShard = std::string(DFLOP_SOURCE_DIR) + "/tests/golden/io/shard-000000.tar";

struct ShardDataTest : ::testing::Test {
  testing::ShardFolder folder;
  ModelSpec model = parse_hugging_face(read_text_file(folder.path() + "/config.json"), folder.path());
};

std::string refusal(const ModelSpec& model, const std::string& folder, const std::string& shard = kShard) {
  try {
    ShardData(model, folder, shard);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_F(ShardDataTest, ShapesFromHeadersEqualShapesOfContents) {
  const ShardData data(model, folder.path(), kShard);
  ASSERT_EQ(data.samples().size(), 3U);
  EXPECT_EQ(data.samples()[0].id, "shard-000000.tar/sample_0000");
  for (const Sample& sample : data.samples()) {
    const SampleContent content = data.read(sample.id, true);
    const Sample decoded = shape_of(model, sample.id, content);
    EXPECT_EQ(decoded.encoder(), sample.encoder());
    EXPECT_EQ(decoded.llm(), sample.llm());
    EXPECT_EQ(decoded.encoder_output_tokens, sample.encoder_output_tokens);
    // An encoder row has the values of its patch: 2 frames, 3 colors, 6 x 6 pixels.
    ASSERT_EQ(content.sequences.size(), 1U);
    EXPECT_EQ(content.sequences[0].values.size(), content.sequences[0].rows * 2 * 3 * 6 * 6);
  }
}

TEST_F(ShardDataTest, WithoutValuesAllElseIsRead) {
  const ShardData data(model, folder.path(), kShard);
  for (const Sample& sample : data.samples()) {
    const SampleContent with = data.read(sample.id, true);
    const SampleContent without = data.read(sample.id, false);
    ASSERT_EQ(without.sequences.size(), 1U);
    EXPECT_TRUE(without.sequences[0].values.empty());
    EXPECT_EQ(without.sequences[0].places, with.sequences[0].places);
    EXPECT_EQ(without.tokens.targets, with.tokens.targets);
    EXPECT_EQ(data.trained_tokens(sample), trained_tokens(with.tokens));
  }
}

/// The answer of sample 1 is "Picture 1." and the token that ends it; only these tokens are targets.
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

/// A picture's size follows segments of any length, such as thumbnails and color profiles.
TEST_F(ShardDataTest, HeadersMayBeLong) {
  const std::string photo = read_text_file(std::string(DFLOP_SOURCE_DIR) + "/tests/golden/io/photo.jpg");
  const std::string tar = folder.path() + "/one.tar";
  write_file_atomically(tar, testing::tar_of_sample(photo));
  const Sample expected = ShardData(model, folder.path(), tar).samples().at(0);
  const std::string segment = "\xFF\xE2\xFF\xFF" + std::string(65533, '\1');  // 65,535 bytes with the length
  for (const int segments : {1, 5}) {                                         // 64 and 320 KiB
    std::string longer = photo.substr(0, 2);
    for (int s = 0; s < segments; ++s) longer += segment;
    write_file_atomically(tar, testing::tar_of_sample(longer + photo.substr(2)));
    const Sample found = ShardData(model, folder.path(), tar).samples().at(0);
    EXPECT_EQ(found.encoder(), expected.encoder());
    EXPECT_EQ(found.llm(), expected.llm());
  }
  write_file_atomically(tar, testing::tar_of_sample(photo.substr(0, 2) + segment));
  EXPECT_NE(refusal(model, folder.path(), tar).find("one.tar: sample 'one', .jpg"), std::string::npos);
}

TEST_F(ShardDataTest, SamplesLongerThanTheModelsLimitAreSkipped) {
  model.max_tokens = 40;  // each picture already has more
  const ShardData data(model, folder.path(), kShard);
  EXPECT_TRUE(data.samples().empty());
  EXPECT_EQ(data.left_out().size(), 3U);
  EXPECT_NE(data.left_out().at(0).why.find("sample_0000"), std::string::npos) << data.left_out().at(0).why;
}

/// WebDataset's keys end at the first dot, so 22.05.json is the member .05.json of sample 22.
TEST_F(ShardDataTest, DotsInBaseNamesAreNamed) {
  const std::string tar = folder.path() + "/dots.tar";
  write_file_atomically(tar, testing::tar_entry("22.05.png", "x") + testing::tar_entry("22.05.json", "{}") +
                                 std::string(1024, '\0'));
  const std::string error = refusal(model, folder.path(), tar);
  EXPECT_NE(
      error.find("expected a member .json with the conversation, found none, but .05.png and .05.json."),
      std::string::npos)
      << error;
  EXPECT_NE(error.find("rename files"), std::string::npos) << error;
}

/// If the cut is before the answer's first token, nothing is left to learn; after it, something is.
TEST_F(ShardDataTest, SamplesWithNoTargetsAfterCuttingAreSkipped) {
  const std::string photo = read_text_file(std::string(DFLOP_SOURCE_DIR) + "/tests/golden/io/photo.jpg");
  const std::string tar = folder.path() + "/one.tar";
  write_file_atomically(tar, testing::tar_of_sample(photo));
  const SampleContent whole = ShardData(model, folder.path(), tar).read("one.tar/one", false);
  const auto first = std::find_if(whole.tokens.targets.begin(), whole.tokens.targets.end(),
                                  [](std::int32_t target) { return target != kNoTarget; });
  const auto asked = first - whole.tokens.targets.begin();  // its next token is the first trained one
  model.max_tokens = asked + 2;
  EXPECT_EQ(ShardData(model, folder.path(), tar).samples().size(), 1U);
  model.max_tokens = asked + 1;
  const ShardData data(model, folder.path(), tar);
  EXPECT_EQ(data.left_out().size(), 1U);
  EXPECT_NE(data.left_out().at(0).why.find("keeps some trained tokens"), std::string::npos)
      << data.left_out().at(0).why;
}

/// Files in tars are ordered by name, so .10.png comes before .2.jpg.
TEST_F(ShardDataTest, PicturesOfASampleComeByTheirNumbers) {
  const std::string io = std::string(DFLOP_SOURCE_DIR) + "/tests/golden/io/";
  const std::string photo = read_text_file(io + "photo.jpg");
  const std::string wide = read_text_file(io + "wide.png");
  const std::string words = R"({"conversations": [{"from": "human", "value": "<image><image>"},
                                                  {"from": "gpt", "value": "x"}]})";
  const std::string tar = folder.path() + "/two.tar";
  const auto rows = [&](const std::string& first, const std::string& second) {
    write_file_atomically(tar,
                          first + second + testing::tar_entry("one.json", words) + std::string(1024, '\0'));
    std::vector<std::int64_t> found;
    for (const EncoderSequence& picture :
         ShardData(model, folder.path(), tar).read("two.tar/one", false).sequences)
      found.push_back(picture.rows);
    return found;
  };
  const auto by_numbers =
      rows(testing::tar_entry("one.10.png", wide), testing::tar_entry("one.2.jpg", photo));
  const auto as_they_stand = rows(testing::tar_entry("one.jpg", photo), testing::tar_entry("one.png", wide));
  ASSERT_EQ(by_numbers.size(), 2U);
  EXPECT_NE(by_numbers[0], by_numbers[1]);  // otherwise the order could not be checked
  EXPECT_EQ(by_numbers, as_they_stand);     // the photo first
}

/// The contents of a picture decide its format: WebP may be named .webp or .jpg.
TEST_F(ShardDataTest, PicturesMayBeWebp) {
  const std::string webp = read_text_file(DFLOP_SOURCE_DIR "/tests/fuzz/corpus/webp/lossless.webp");
  for (const char* extension : {"webp", "jpg"}) {
    const std::string tar = folder.path() + "/one.tar";
    write_file_atomically(tar, testing::tar_of_sample(webp, extension));
    const SampleContent content = ShardData(model, folder.path(), tar).read("one.tar/one", true);
    ASSERT_EQ(content.sequences.size(), 1U);
    EXPECT_GT(content.sequences[0].values.size(), 0);
  }
}

/// Numbers may have any number of digits. If they do not define an order, the sample is rejected.
TEST_F(ShardDataTest, PicturesInNoCertainOrderAreRejected) {
  const std::string photo = read_text_file(std::string(DFLOP_SOURCE_DIR) + "/tests/golden/io/photo.jpg");
  const std::string words = R"({"conversations": [{"from": "human", "value": "<image><image>"},
                                                  {"from": "gpt", "value": "x"}]})";
  const auto refused = [&](const std::string& first, const std::string& second) {
    const std::string tar = folder.path() + "/two.tar";
    write_file_atomically(tar, testing::tar_entry("one." + first, photo) +
                                   testing::tar_entry("one." + second, photo) +
                                   testing::tar_entry("one.json", words) + std::string(1024, '\0'));
    return refusal(model, folder.path(), tar);
  };
  EXPECT_EQ(refused("99999999999999999999.jpg", "2.jpg"), "");
  EXPECT_EQ(refused("left.jpg", "right.jpg"), "");
  for (const auto& [first, second] : {std::pair{"01.jpg", "1.jpg"},
                                      {"1.jpg", "1.jpeg"},
                                      {"1.5.jpg", "1.25.jpg"},
                                      {"jpg", "1.jpg"},
                                      {"-1.jpg", "0.jpg"}}) {
    const std::string said = refused(first, second);
    EXPECT_NE(said.find("two.tar: sample 'one'"), std::string::npos)
        << first << " " << second << ": " << said;
    EXPECT_NE(said.find("with a number each"), std::string::npos) << said;
  }
}

/// An empty answer still has the token that ends it. A text of one token has no next token.
TEST_F(ShardDataTest, SamplesWithoutTargetsAreSkipped) {
  const std::string tar = folder.path() + "/short.tar";
  write_file_atomically(tar, testing::tar_entry("one.json", R"({"text": "x"})") + std::string(1024, '\0'));
  const ShardData data(model, folder.path(), tar);
  EXPECT_TRUE(data.samples().empty());
  EXPECT_EQ(data.left_out().size(), 1U);
  EXPECT_NE(data.left_out().at(0).why.find("short.tar/one"), std::string::npos) << data.left_out().at(0).why;
}

/// The templates of Qwen2 and Qwen2.5 have different default system messages.
TEST_F(ShardDataTest, TheChatFormFollowsTheFoldersTemplate) {
  const std::string qwen = DFLOP_SOURCE_DIR "/tests/golden/models/qwen2-tied";
  const ModelSpec text = parse_hugging_face(read_text_file(qwen + "/config.json"), qwen);
  const auto form = [&] { return usual_chat_form(text, read_chat_template(folder.path())).name; };
  EXPECT_EQ(form(), "qwen2.5");
  const auto save = [&](const std::string& name, const std::string& words) {
    write_file_atomically(folder.path() + "/" + name, words);
  };
  save("tokenizer_config.json",
       R"({"chat_template": "{{'<|im_start|>system\\nYou are a helpful assistant.'}}"})");
  EXPECT_EQ(form(), "qwen2");
  save("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "x"},
      {"name": "default", "template": "<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful"}]})");
  EXPECT_EQ(form(), "qwen2.5");
  save("chat_template.jinja", "{% for m in messages %}<|im_start|>{{ m.role }}{% endfor %}");
  EXPECT_EQ(form(), "chatml");
  EXPECT_NE(usual_chat_form(text, "<|im_start|>").note.find("--chat"), std::string::npos);
  EXPECT_EQ(usual_chat_form(model, "You are Qwen, created by Alibaba Cloud.").name, "qwen2")
      << "of Qwen2.5-VL";
  std::filesystem::remove(folder.path() + "/chat_template.jinja");
  save("tokenizer_config.json", "{");
  EXPECT_NE(testing::input_error([&] { form(); }).find("tokenizer_config.json"), std::string::npos);
}

/// LLaVA 1.5 with a tokenizer that marks spaces: a picture has a token for each of its 4 x 4 patches.
TEST_F(ShardDataTest, ChatsOfLlavaAreRead) {
  using nlohmann::json;
  const std::string golden = DFLOP_SOURCE_DIR "/tests/golden/";
  json config = json::parse(read_text_file(golden + "models/llava-1.5/config.json"));
  config["image_token_index"] = 700;
  config["text_config"]["vocab_size"] = 704;
  const auto read = [&] {
    return ShardData(parse_hugging_face(config.dump(), folder.path()), folder.path(), kShard);
  };
  const std::string tokenizer = read_text_file(golden + "io/tokenizer-llama2.json");
  write_file_atomically(folder.path() + "/tokenizer.json", tokenizer);
  const ShardData data = read();
  ASSERT_EQ(data.samples().size(), 3U);
  const SampleContent content = data.read("shard-000000.tar/sample_0001", true);
  EXPECT_EQ(data.samples()[1].encoder_output_tokens, 16);
  std::string text;  // without the picture's tokens
  std::string trained;
  const Tokenizer tokens(folder.path() + "/tokenizer.json");
  for (const std::int32_t id : content.tokens.ids) text += tokens.bytes_of(id);
  for (const std::int32_t id : content.tokens.targets) trained += id == kNoTarget ? "" : tokens.bytes_of(id);
  EXPECT_EQ(text, "<s> USER:  \nWhat is this? ASSISTANT: Picture 1.</s>");
  EXPECT_EQ(trained, " Picture 1.</s>");
  config["image_token_index"] = 699;
  EXPECT_NE(testing::input_error(read).find("expected token '<image>' with id 699"), std::string::npos);
}

/// LLaVA's form follows its LLM; Llama 2's vocabulary is smaller than Llama 3's. Some Qwen3 models can think.
TEST(ChatForms, FollowTheFamilyAndItsLlm) {
  const auto form = [](const std::string& name, const std::string& llm = "", std::int32_t vocabulary = 0,
                       std::string_view chat_template = "") {
    const std::string folder = DFLOP_SOURCE_DIR "/tests/golden/models/" + name;
    ModelSpec model = parse_hugging_face(read_text_file(folder + "/config.json"), folder);
    if (!llm.empty()) model.llm.name = llm;
    if (vocabulary > 0) model.llm.vocabulary = vocabulary;
    return usual_chat_form(model, chat_template).name;
  };
  EXPECT_EQ(form("llava-1.5"), "vicuna");
  EXPECT_EQ(form("llava-1.5", "mistral"), "vicuna");  // BakLLaVA
  EXPECT_EQ(form("llava-1.5", "llama", 128'320), "llama3");
  EXPECT_EQ(form("llava-1.5", "qwen2"), "chatml");
  EXPECT_EQ(form("llava-next", "llama", 32'064), "vicuna");
  EXPECT_EQ(form("llava-next", "mistral", 32'064), "mistral");
  EXPECT_EQ(form("llava-next", "llama", 128'320), "llama3");
  EXPECT_EQ(form("llava-next", "qwen2", 151'647), "chatml");
  EXPECT_EQ(form("llama3"), "llama3");
  EXPECT_EQ(form("internvl3.5-style"), "chatml");
  EXPECT_EQ(form("qwen2-vl"), "qwen2");
  EXPECT_EQ(form("qwen3-vl"), "chatml");
  EXPECT_EQ(form("qwen3"), "chatml");
  EXPECT_EQ(form("qwen3", "", 0, "{{- '<think>\\n\\n</think>' }}"), "qwen3");
  EXPECT_EQ(form("llava-onevision-qwen2"), "qwen2");
}

TEST_F(ShardDataTest, ATokenizerOfAnotherModelIsRejected) {
  ModelSpec other = model;
  other.architecture->image_token = 17;
  EXPECT_NE(refusal(other, folder.path()).find("expected token '<|image_pad|>' with id 17"),
            std::string::npos);
  other = model;
  other.llm.vocabulary = 100;
  EXPECT_NE(refusal(other, folder.path()).find("expected at most 100 tokens"), std::string::npos);
}

/// The tokens before and after pictures have the ids that config.json says, too.
TEST_F(ShardDataTest, IdsOfTokensAroundPicturesAreCompared) {
  const std::string file = folder.path() + "/config.json";
  for (const auto& [key, token] :
       {std::pair{"vision_start_token_id", "<|vision_start|>"}, {"vision_end_token_id", "<|vision_end|>"}}) {
    nlohmann::json config = nlohmann::json::parse(read_text_file(file));
    const std::string whole = config.dump();
    const int id = config[key];
    config[key] = 17;
    write_file_atomically(file, config.dump());
    EXPECT_NE(refusal(model, folder.path())
                  .find(std::string("expected token '") + token + "' with id 17, as config.json's '" + key +
                        "' says, found " + std::to_string(id)),
              std::string::npos)
        << refusal(model, folder.path());
    config.erase(key);
    write_file_atomically(file, config.dump());
    EXPECT_EQ(refusal(model, folder.path()), "");
    write_file_atomically(file, whole);
  }
}

}  // namespace shard_data_test
}  // namespace dflop
