// The rules of LLaVA 1.5, LLaVA-NeXT and Qwen3-VL, against tests/golden/io/grids.json and the models' own
// processors.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/support/random.hpp"
#include "tests/traces/file_fixtures.hpp"
#include "traces/families/hugging_face.hpp"
#include "traces/media/model_media.hpp"
#include "traces/preprocess/preprocess.hpp"
#include "traces/preprocess/rules.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace preprocess_clip_test {

using nlohmann::json;

json golden_grids(const char* key) {
  return json::parse(read_text_file(DFLOP_SOURCE_DIR "/tests/golden/io/grids.json")).at(key);
}

ImageSize size_of(const json& row) {
  return {row.at("size")[1], row.at("size")[0]};
}

Record images(std::vector<ImageSize> sizes) {
  Record record;
  record.id = "r";
  record.row = 17;
  record.text_tokens = 10;
  record.modality = sizes.size() == 1 ? Modality::image : Modality::multi_image;
  record.image_count = static_cast<std::int32_t>(sizes.size());
  record.images = std::move(sizes);
  return record;
}

Record video(std::int64_t frames, double fps, ImageSize size) {
  Record record;
  record.id = "v";
  record.row = 17;
  record.modality = Modality::video;
  record.video_frames = frames;
  record.video_fps = fps;
  record.video_size = size;
  return record;
}

Preprocessed apply(const Record& record, const char* rule) {
  PreprocessOptions options;
  options.rule = rule;
  return preprocess({&record, 1}, options, "t.csv");
}

Sample encode(const Record& record, const char* rule) {
  return apply(record, rule).samples.at(0);
}

/// A square of 336 pixels has 24 x 24 patches, and a class row for the encoder only.
TEST(PreprocessClip, Llava15ImagesAreOneSquareEach) {
  for (const int count : {1, 3}) {
    Record record = images(std::vector<ImageSize>(static_cast<std::size_t>(count)));
    record.images.clear();  // sizes do not matter and are not assumed
    const Preprocessed result = apply(record, "llava-1.5");
    EXPECT_FALSE(result.assumptions.any());
    EXPECT_EQ(result.samples[0].encoder(), (Workload{count, count * 577, count * 577 * 577}));
    EXPECT_EQ(result.samples[0].encoder_output_tokens, count * 576);
    EXPECT_EQ(result.samples[0].llm_tokens, count * 576 + 10);
  }
}

TEST(PreprocessClip, LlavaNextImagesEqualTransformers) {
  std::vector<ImageSize> all;
  std::int64_t tiles = 0;
  std::int64_t tokens = 0;
  for (const json& row : golden_grids("pictures")) {
    SCOPED_TRACE(row["size"].dump());
    const json& expected = row["llava-next"];
    const TileGrid grid = llava_next_grid(size_of(row));
    EXPECT_EQ((json{336 * grid.rows, 336 * grid.columns}), expected["best"]);
    const Sample sample = encode(images({size_of(row)}), "llava-next");
    const auto count = expected["tiles"].get<std::int64_t>();
    EXPECT_EQ(sample.encoder(), (Workload{count, count * 577, count * 577 * 577}));
    EXPECT_EQ(sample.encoder_output_tokens, expected["tokens"]);
    all.push_back(size_of(row));
    tiles += count;
    tokens += expected["tokens"].get<std::int64_t>();
  }
  // Each of several images is cut into tiles like a single one.
  const Sample several = encode(images(all), "llava-next");
  EXPECT_EQ(several.encoder().sequences, tiles);
  EXPECT_EQ(several.encoder_output_tokens, tokens);
}

/// By hand: 672x336 fills 1 x 2 tiles, 24 rows of 48 tokens and a newline. A square of 500 pixels is fit into
/// 2 x 2 tiles, 48 rows of 48 + 1.
TEST(PreprocessClip, LlavaNextRowsEndInNewlines) {
  EXPECT_EQ(encode(images({{672, 336}}), "llava-next").encoder_output_tokens, 576 + 24 * 49);
  EXPECT_EQ(encode(images({{500, 500}}), "llava-next").encoder_output_tokens, 576 + 48 * 49);
  EXPECT_EQ(encode(images({{500, 500}}), "llava-next").encoder().sequences, 5);
}

TEST(PreprocessClip, RulesEqualTheModelsOwnProcessors) {
  for (const std::string name : {"llava-1.5", "llava-next"}) {
    const std::string folder = DFLOP_SOURCE_DIR "/tests/golden/models/" + name;
    json config = json::parse(read_text_file(folder + "/config.json"));
    config["vision_config"]["image_size"] = 336;
    config["vision_config"]["patch_size"] = 14;
    config["image_grid_pinpoints"] = {{336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}};
    const ModelSpec model = parse_hugging_face(config.dump(), folder);
    EXPECT_EQ(model.preprocess, name);
    PreprocessOptions own;
    own.rule = model.preprocess;
    own.media = std::make_shared<ModelMedia>(model, read_model_processor(model, folder));
    Random random(21);
    for (int draw = 0; draw < 300; ++draw) {
      std::vector<ImageSize> sizes(1 + random.below(3));
      for (ImageSize& size : sizes) {
        size = {static_cast<std::int32_t>(10 + random.below(3000)),
                static_cast<std::int32_t>(10 + random.below(3000))};
      }
      const Record record = images(sizes);
      const Sample expected = preprocess({&record, 1}, own, "t.csv").samples.front();
      const Sample found = encode(record, name.c_str());
      EXPECT_EQ(found.encoder(), expected.encoder()) << sizes[0].width << "x" << sizes[0].height;
      EXPECT_EQ(found.encoder_output_tokens, expected.encoder_output_tokens);
    }
  }
}

TEST(PreprocessClip, Qwen3ImagesEqualTransformers) {
  for (const json& row : golden_grids("pictures")) {
    SCOPED_TRACE(row["size"].dump());
    const std::int64_t tokens =
        row["qwen3-vl"][0].get<std::int64_t>() / 32 * (row["qwen3-vl"][1].get<std::int64_t>() / 32);
    const Sample sample = encode(images({size_of(row)}), "qwen3-vl");
    EXPECT_EQ(sample.encoder(), (Workload{1, 4 * tokens, 16 * tokens * tokens}));
    EXPECT_EQ(sample.encoder_output_tokens, tokens);
  }
}

/// At 2 frames per second, all frames are sampled; of an odd number, the last is repeated.
TEST(PreprocessClip, Qwen3VideosEqualTransformers) {
  for (const json& row : golden_grids("videos of qwen3-vl")) {
    SCOPED_TRACE(row.dump());
    const auto frames = row["frames"].get<std::int64_t>();
    const std::int64_t tokens =
        row["resized"][0].get<std::int64_t>() / 32 * (row["resized"][1].get<std::int64_t>() / 32);
    const Sample sample = encode(video(frames, 2, size_of(row)), "qwen3-vl");
    const std::int64_t slots = (frames + 1) / 2;
    EXPECT_EQ(slots, std::ssize(row["seconds"]));
    EXPECT_EQ(sample.encoder(), (Workload{slots, slots * 4 * tokens, slots * 16 * tokens * tokens}));
    EXPECT_EQ(sample.encoder_output_tokens, slots * tokens);
  }
}

TEST(PreprocessClip, Qwen3VideoFrames) {
  EXPECT_EQ(qwen3_sampled_frames({300, 30}), 20);      // 10 s at 2 frames per second
  EXPECT_EQ(qwen3_sampled_frames({30, 30}), 4);        // 2 wanted, but at least 4
  EXPECT_EQ(qwen3_sampled_frames({3, 30}), 3);         // all
  EXPECT_EQ(qwen3_sampled_frames({345, 30}), 23);      // 11.5 s
  EXPECT_EQ(qwen3_sampled_frames({359, 30}), 23);      // 23.9, rounded down
  EXPECT_EQ(qwen3_sampled_frames({900000, 30}), 768);  // the upper limit
}

TEST(PreprocessClip, RejectedRecordsAreNamed) {
  expect_refused(
      [] {
        apply(images({{6000, 29}}), "qwen3-vl");
      },
      "t.csv:row 17, column 'images'", {"at most 200", "6000x29"});
  expect_refused(
      [] {
        apply(video(1, 30, {64, 64}), "qwen3-vl");
      },
      "t.csv:row 17, column 'video_frames'", {"at least 2 frames"});
  for (const char* rule : {"llava-1.5", "llava-next"}) {
    expect_refused(
        [&] {
          apply(video(9, 30, {64, 64}), rule);
        },
        "t.csv:row 17, column 'modality'", {"text,image,multi_image", "found video"});
  }
}

}  // namespace preprocess_clip_test
}  // namespace dflop
