// Checks every row of the golden tables. traces/datasets/SOURCES.md says where their values come from.
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "traces/preprocess/preprocess.hpp"
#include "traces/preprocess/rules.hpp"
#include "traces/text/csv.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace golden_test {

using Row = std::map<std::string, std::string, std::less<>>;

std::vector<Row> read_table(const std::string& name) {
  const std::string text = read_text_file(std::string(DFLOP_SOURCE_DIR "/traces/golden/") + name);
  CsvReader reader(text, name);
  std::vector<std::string_view> header;
  std::vector<std::string_view> fields;
  std::vector<Row> rows;
  reader.next(header);
  while (reader.next(fields)) {
    Row& row = rows.emplace_back();
    for (std::size_t i = 0; i < header.size(); ++i) row.emplace(header[i], fields.at(i));
  }
  return rows;
}

std::int64_t whole(const Row& row, const char* column) {
  return std::stoll(row.at(column));
}

Sample encode(const Record& record, const char* rule) {
  PreprocessOptions options;
  options.rule = rule;
  options.strict = true;
  return preprocess({&record, 1}, options, "golden").samples.at(0);
}

Record image_record(const Row& row) {
  Record record;
  record.id = "golden";
  record.modality = Modality::image;
  record.image_count = 1;
  record.images = {{std::stoi(row.at("w")), std::stoi(row.at("h"))}};
  return record;
}

class GoldenImages : public ::testing::Test {
 protected:
  const std::vector<Row> rows_ = read_table("preprocess_golden_images.csv");
};

TEST_F(GoldenImages, TableIsWhole) {
  EXPECT_EQ(rows_.size(), 95u);
}

TEST_F(GoldenImages, LlavaOneVision) {
  for (const Row& row : rows_) {
    SCOPED_TRACE(row.at("w") + "x" + row.at("h"));
    const Record record = image_record(row);
    const TileGrid grid = llava_grid(record.images[0]);
    EXPECT_EQ(grid.columns, whole(row, "ov_gw"));
    EXPECT_EQ(grid.rows, whole(row, "ov_gh"));
    const Sample upstream = encode(record, "llava-ov");
    EXPECT_EQ(upstream.encoder().sequences, whole(row, "ov_tiles"));
    EXPECT_EQ(upstream.encoder().tokens, whole(row, "ov_vit_tokens"));
    EXPECT_EQ(upstream.llm_tokens, whole(row, "ov_llm_tokens_upstream"));
    const Sample variant = encode(record, "llava-ov-dflop");
    EXPECT_EQ(variant.encoder(), upstream.encoder());
    EXPECT_EQ(variant.llm_tokens, whole(row, "ov_llm_tokens_dflop"));
  }
}

TEST_F(GoldenImages, InternVl) {
  for (const Row& row : rows_) {
    SCOPED_TRACE(row.at("w") + "x" + row.at("h"));
    const Record record = image_record(row);
    const TileGrid grid = internvl_grid(record.images[0], 12);
    EXPECT_EQ(grid.columns, whole(row, "ivl12_cols"));
    EXPECT_EQ(grid.rows, whole(row, "ivl12_rows"));
    const Sample sample = encode(record, "internvl2.5");
    EXPECT_EQ(sample.encoder().sequences, whole(row, "ivl12_tiles"));
    EXPECT_EQ(sample.encoder().tokens, 1025 * whole(row, "ivl12_tiles"));
    EXPECT_EQ(sample.llm_tokens, whole(row, "ivl12_llm_tokens"));
  }
}

TEST_F(GoldenImages, Qwen2Vl) {
  for (const Row& row : rows_) {
    SCOPED_TRACE(row.at("w") + "x" + row.at("h"));
    const Record record = image_record(row);
    // Hugging Face limits: 56² and 1280 tokens of 28² pixels.
    const ImageSize resized = qwen_resize(record.images[0], 3136, 1003520);
    EXPECT_EQ(resized.width, whole(row, "qwen2_w"));
    EXPECT_EQ(resized.height, whole(row, "qwen2_h"));
    const Sample sample = encode(record, "qwen2-vl");
    const std::int64_t patches = whole(row, "qwen2_vit_tokens");
    EXPECT_EQ(sample.encoder(), (Workload{1, patches, patches * patches}));
    EXPECT_EQ(sample.llm_tokens, whole(row, "qwen2_llm_tokens"));
  }
}

TEST_F(GoldenImages, Qwen25Vl) {
  for (const Row& row : rows_) {
    SCOPED_TRACE(row.at("w") + "x" + row.at("h"));
    const Record record = image_record(row);
    // qwen-vl-utils limits: 4 and 16384 tokens of 28² pixels.
    const ImageSize resized = qwen_resize(record.images[0], 3136, 12845056);
    EXPECT_EQ(resized.width, whole(row, "qwen25_w"));
    EXPECT_EQ(resized.height, whole(row, "qwen25_h"));
    const Sample sample = encode(record, "qwen2.5-vl");
    const std::int64_t patches = whole(row, "qwen25_vit_tokens");
    EXPECT_EQ(sample.encoder().tokens, patches);
    EXPECT_EQ(sample.llm_tokens, whole(row, "qwen25_llm_tokens"));
    // 32 layers: 28 see windows, 4 see everything.
    EXPECT_EQ(32 * sample.encoder().attention_pairs,
              28 * whole(row, "qwen25_sum_win_sq") + 4 * patches * patches);
  }
}

TEST(Golden, Video) {
  int videos = 0;
  for (const Row& row : read_table("preprocess_golden_video_audio.csv")) {
    if (row.at("kind") != "video") continue;
    ++videos;
    SCOPED_TRACE(row.at("frames") + " frames, " + row.at("fps") + " fps, " + row.at("w") + "x" + row.at("h"));
    Record record;
    record.id = "golden";
    record.modality = Modality::video;
    record.video_frames = whole(row, "frames");
    record.video_fps = std::stod(row.at("fps"));
    record.video_size = ImageSize{std::stoi(row.at("w")), std::stoi(row.at("h"))};
    for (const char* rule : {"llava-ov", "llava-ov-dflop"}) {
      const Sample llava = encode(record, rule);
      EXPECT_EQ(llava.encoder().sequences, whole(row, "ov_frames"));
      EXPECT_EQ(llava.encoder().tokens, whole(row, "ov_vit_tokens"));
      EXPECT_EQ(llava.llm_tokens, whole(row, "ov_llm_grid"));
    }
    EXPECT_EQ(qwen_sampled_frames({*record.video_frames, *record.video_fps}), whole(row, "qwen25_frames"));
    for (const char* rule : {"qwen2-vl", "qwen2.5-vl"}) {
      const Sample qwen = encode(record, rule);
      // A temporal slot holds two frames and has (height / 14) (width / 14) patches.
      EXPECT_EQ(qwen.encoder().sequences, whole(row, "qwen25_frames") / 2);
      EXPECT_EQ(qwen.encoder_sequences.at(0).tokens,
                whole(row, "qwen25_h") / 14 * (whole(row, "qwen25_w") / 14));
      EXPECT_EQ(qwen.encoder().tokens, whole(row, "qwen25_vit_tokens"));
      EXPECT_EQ(qwen.llm_tokens, whole(row, "qwen25_llm_tokens"));
    }
  }
  EXPECT_EQ(videos, 29);
}

TEST(Golden, Audio) {
  int clips = 0;
  for (const Row& row : read_table("preprocess_golden_video_audio.csv")) {
    if (row.at("kind") != "audio") continue;
    ++clips;
    SCOPED_TRACE(row.at("audio_s") + " s");
    Record record;
    record.id = "golden";
    record.modality = Modality::audio;
    record.audio_s = std::stod(row.at("audio_s"));
    const Sample sample = encode(record, "qwen2-audio");
    EXPECT_EQ(sample.encoder().tokens, whole(row, "qwen2audio_encoder_positions"));
    EXPECT_EQ(sample.llm_tokens, whole(row, "qwen2audio_llm_tokens"));
  }
  EXPECT_EQ(clips, 21);
}

}  // namespace golden_test
}  // namespace dflop
