// The preprocessing rule of the tiny models.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "traces/data/records.hpp"
#include "traces/preprocess/preprocess.hpp"

namespace dflop {
namespace preprocess_tiny_test {

Record record_of(Modality modality, std::vector<ImageSize> images, std::int64_t text_tokens) {
  Record record;
  record.id = "r";
  record.modality = modality;
  record.image_count = static_cast<std::int32_t>(images.size());
  record.images = std::move(images);
  record.text_tokens = text_tokens;
  return record;
}

Record video(std::int64_t frames, double fps) {
  Record record = record_of(Modality::video, {}, 10);
  record.video_frames = frames;
  record.video_fps = fps;
  return record;
}

Sample encode(const Record& record, std::int64_t max_tokens = 0, const char* rule = "tiny-vlm") {
  PreprocessOptions options;
  options.rule = rule;
  options.max_tokens = max_tokens;
  options.strict = true;
  return preprocess({&record, 1}, options, "t.csv").samples.at(0);
}

TEST(PreprocessTiny, AnImageIsItsGridAndABaseTile) {
  // 384x384 fills one tile; with the base, 2 tiles of 4x4 = 16 patches, 16² = 256 pairs and 2x2 = 4 LLM
  // tokens.
  const Sample small = encode(record_of(Modality::image, {{384, 384}}, 10));
  EXPECT_EQ(small.encoder_sequences, (std::vector<EncoderSequences>{{2, 16, 256}}));
  EXPECT_EQ(small.encoder_output_tokens, 8);
  EXPECT_EQ(small.llm_tokens, 18);
  // 1152x768 fills 3x2 tiles of 384: 7 with the base. 2304x2304 fills 6x6: 37, the maximum of any image.
  EXPECT_EQ(encode(record_of(Modality::image, {{1152, 768}}, 10)).encoder_output_tokens, 7 * 4);
  EXPECT_EQ(encode(record_of(Modality::image, {{2304, 2304}}, 10)).encoder_output_tokens, 37 * 4);
}

TEST(PreprocessTiny, SeveralImagesAreATileEach) {
  const Sample sample = encode(record_of(Modality::multi_image, {{100, 100}, {2000, 50}, {3, 4}}, 10));
  EXPECT_EQ(sample.encoder_sequences, (std::vector<EncoderSequences>{{3, 16, 256}}));
  EXPECT_EQ(sample.llm_tokens, 3 * 4 + 10);
}

TEST(PreprocessTiny, AVideoIsAFrameASecondAnd32AtMost) {
  // 300 frames at 30 fps: every thirtieth, 10. 3,000 frames would be 100.
  EXPECT_EQ(encode(video(300, 30)).encoder_sequences, (std::vector<EncoderSequences>{{10, 16, 256}}));
  EXPECT_EQ(encode(video(300, 30)).encoder_output_tokens, 40);
  EXPECT_EQ(encode(video(3000, 30)).encoder().sequences, 32);
}

TEST(PreprocessTiny, CutsTextAt256Tokens) {
  EXPECT_EQ(encode(record_of(Modality::text, {}, 255)).llm_tokens, 255);
  EXPECT_EQ(encode(record_of(Modality::text, {}, 256)).llm_tokens, 256);
  EXPECT_EQ(encode(record_of(Modality::text, {}, 257)).llm_tokens, 256);
  // The text is cut before the sequence: 2 tiles and 256 tokens are 264, cut at 263 and at 7.
  const Record image = record_of(Modality::image, {{384, 384}}, 1000);
  EXPECT_EQ(encode(image).llm_tokens, 264);
  EXPECT_EQ(encode(image, 263).llm_tokens, 263);
  EXPECT_EQ(encode(image, 7).encoder_output_tokens, 7);
  // Other rules keep all text.
  EXPECT_EQ(encode(record_of(Modality::text, {}, 1000), 0, "llava-ov").llm_tokens, 1000);
}

TEST(PreprocessTiny, TakesNoAudio) {
  EXPECT_EQ(rule_modalities("tiny-vlm"),
            (std::vector<Modality>{Modality::text, Modality::image, Modality::multi_image, Modality::video}));
}

// The sequences of LLaVA-OneVision, so that work varies as it does there, but none longer than the 1,024
// tokens of the tiny models: at most 37 * 4 + 256 = 404 for a single image, 336 for the at most 20 images of
// a row, 384 for a video.
TEST(PreprocessTiny, MakesTheTilesOfLlavaOnTheBundledTable) {
  const std::vector<Record> records = load_records(DFLOP_SOURCE_DIR "/traces/datasets/vision_mix.csv");
  PreprocessOptions options;
  options.rule = "tiny-vlm";
  const Preprocessed tiny = preprocess(records, options, "t.csv");
  options.rule = "llava-ov";
  const Preprocessed llava = preprocess(records, options, "t.csv");
  ASSERT_EQ(tiny.samples.size(), llava.samples.size());
  std::int64_t longest = 0;
  for (std::size_t i = 0; i < tiny.samples.size(); ++i) {
    EXPECT_EQ(tiny.samples[i].encoder().sequences, llava.samples[i].encoder().sequences);
    longest = std::max(longest, tiny.samples[i].llm_tokens);
  }
  EXPECT_GT(longest, 300);
  EXPECT_LE(longest, 404);
}

}  // namespace preprocess_tiny_test
}  // namespace dflop
