// Sample files keep what a model sees of a data set.
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "traces/files/samples.hpp"

namespace dflop::testing {
namespace samples_file_test {

std::vector<Sample> two_samples() {
  Sample image;
  image.id = "a \"quoted\" name";
  image.modality = Modality::multi_image;
  image.encoder_sequences = {{2, 16, 256}, {1, 8, 64}, {3, 8, 64, true}};
  image.encoder_output_tokens = 10;
  image.llm_tokens = 30;
  Sample text;
  text.id = "b";
  text.llm_tokens = 7;
  text.untrained_tokens = 5;
  return {image, text};
}

bool same(const Sample& a, const Sample& b) {
  return a.id == b.id && a.modality == b.modality && a.encoder_sequences == b.encoder_sequences &&
         a.encoder_output_tokens == b.encoder_output_tokens && a.llm_tokens == b.llm_tokens &&
         a.untrained_tokens == b.untrained_tokens;
}

TEST(SamplesFile, ReadsBackUnchanged) {
  const std::vector<Sample> samples = two_samples();
  const std::string text = samples_json(samples);
  EXPECT_TRUE(holds_samples(text));
  const std::vector<Sample> read = parse_samples(text, "s.json");
  ASSERT_EQ(read.size(), 2u);
  EXPECT_NE(text.find("[[2,16,256],[1,8,64],[3,8,64,2]]"), std::string::npos) << "the second encoder's";
  EXPECT_TRUE(same(read[0], samples[0]) && same(read[1], samples[1]));
  EXPECT_FALSE(holds_samples("id,modality\n")) << "records are a CSV";
  EXPECT_FALSE(holds_samples(" \n"));
}

TEST(SamplesFile, ErrorsNameTheirPlace) {
  const auto message = [](std::string_view samples) {
    try {
      parse_samples(R"({"schema":"dflop.samples","version":1,"samples":[)" + std::string(samples) + "]}",
                    "s.json");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  const std::string_view good =
      R"({"id":"a","modality":"text","encoder_sequences":[],"encoder_output_tokens":0,"llm_tokens":7})";
  EXPECT_EQ(message(good), "none");
  EXPECT_NE(message("").find("s.json: key 'samples': expected at least one sample"), std::string::npos);
  EXPECT_NE(
      message(
          R"({"id":"a","modality":"image","encoder_sequences":[[1,4,16]],"encoder_output_tokens":9,"llm_tokens":7})")
          .find("at most the 7 LLM tokens"),
      std::string::npos);
  EXPECT_NE(
      message(
          R"({"id":"a","modality":"video","encoder_sequences":[],"encoder_output_tokens":0,"llm_tokens":7})")
          .find("samples[0].encoder_sequences': expected at least one group in a sample of modality video"),
      std::string::npos);
  EXPECT_NE(
      message(
          R"({"id":"a","modality":"image","encoder_sequences":[[1,4,16]],"encoder_output_tokens":0,"llm_tokens":7})")
          .find("encoder_output_tokens': expected at least 1 with encoder sequences"),
      std::string::npos);
  // Each of 4 tokens attends at least to itself.
  EXPECT_NE(
      message(
          R"({"id":"a","modality":"image","encoder_sequences":[[1,4,3]],"encoder_output_tokens":1,"llm_tokens":7})")
          .find("samples[0].encoder_sequences[0][2]': expected a whole number from 4 to 16, found 3"),
      std::string::npos)
      << message(
             R"({"id":"a","modality":"image","encoder_sequences":[[1,4,3]],"encoder_output_tokens":1,"llm_tokens":7})");
  EXPECT_NE(message(R"({"id":"a","modality":"text"})").find("encoder_sequences"), std::string::npos);
  EXPECT_NE(
      message(
          R"({"id":"a","modality":"text","encoder_sequences":[],"encoder_output_tokens":0,"llm_tokens":10000001})")
          .find("at most 10000000 tokens"),
      std::string::npos);
  EXPECT_NE(
      message(
          R"({"id":"a","modality":"image","encoder_sequences":[[30,1000000,1000000000000]],"encoder_output_tokens":1,"llm_tokens":7})")
          .find("at most 2e+13 attention pairs"),
      std::string::npos);
  EXPECT_NE(message(std::string(good) + "," + R"({"id":3})").find("samples[1]"), std::string::npos);
}

}  // namespace samples_file_test
}  // namespace dflop::testing
