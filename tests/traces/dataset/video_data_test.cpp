// Videos of data sets become the frames, tokens and positions of the model's family.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "core/error.hpp"
#include "core/support/random.hpp"
#include "tests/core/input_error.hpp"
#include "tests/traces/dataset/shard_folder.hpp"
#include "tests/traces/media/png_file.hpp"
#include "traces/dataset/media.hpp"
#include "traces/dataset/shard_data.hpp"
#include "traces/families/hugging_face.hpp"
#include "traces/media/video_frames.hpp"
#include "traces/preprocess/rules.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace video_data_test {

using testing::gray_png;

/// A Data is a folder with a model, lists and videos.
struct Data {
  testing::ShardFolder folder;
  ModelSpec model;

  explicit Data(const std::string& name)
      : folder(name),
        model(parse_hugging_face(read_text_file(folder.path() + "/config.json"), folder.path())) {
    model.max_tokens = 100'000;
  }

  std::string write(const std::string& name, const std::string& text) const {
    std::string path = folder.path() + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    write_file_atomically(path, text);
    return path;
  }
  /// Writes frame-0.png, frame-1.png and so on, of the grays 0, 10, 20, ...
  void write_frames(const std::string& video, int count, std::uint32_t width = 64,
                    std::uint32_t height = 48) const {
    for (int i = 0; i < count; ++i)
      write(video + "/frame-" + std::to_string(i) + ".png",
            gray_png(width, height, static_cast<std::uint8_t>(10 * i)));
  }
  /// Opens a list whose lines have a video each, with these keys next to a conversation about it.
  ShardData open(const std::vector<std::string>& keys, bool skip_bad = false,
                 ExifRule exif = ExifRule::upright) const {
    std::string lines;
    for (const std::string& key : keys) {
      lines += "{" + key + R"(, "messages": [{"role": "user", "content": "<video>"}, )" +
               R"({"role": "assistant", "content": "x"}]})" + "\n";
    }
    DatasetOptions options;
    options.skip_bad = skip_bad;
    options.exif = exif;
    options.chat_form = "plain";
    return ShardData(model, folder.path(), write("a.jsonl", lines), options);
  }
  std::string refusal(const std::string& keys) const {
    return testing::input_error([&] { open({keys}); });
  }
  std::string words_of(const SampleContent& content) const {
    const Tokenizer tokenizer(folder.path() + "/tokenizer.json");
    std::string words;
    for (const std::int32_t id : content.tokens.ids) words += tokenizer.bytes_of(id);
    return words;
  }
};

/// Returns the red value of the first pixel of each frame, from the scaled patches of Qwen's encoder.
std::vector<int> grays_of(const SampleContent& content, const PixelScale& scale, int patch) {
  std::vector<int> grays;
  for (const EncoderSequence& sequence : content.sequences) {
    const auto* values = reinterpret_cast<const float*>(sequence.values.data());
    for (int frame = 0; frame < 2; ++frame) {
      const double value = values[frame * patch * patch] * scale.deviation[0] + scale.mean[0];
      grays.push_back(static_cast<int>(std::lround(value * 255)));
    }
  }
  return grays;
}

/// Names sort by their numbers; other files of the folder are no frames. Without a rate, all are taken.
TEST(VideoData, FolderHasItsFramesInTheOrderOfTheirNumbers) {
  const Data data("qwen2.5-vl");
  data.write_frames("v", 12);  // 0, 1, 10, 11, 2 as text
  data.write("v/notes.txt", "no picture");
  const ShardData shards = data.open({R"("videos": ["v"])"});
  ASSERT_EQ(shards.samples().size(), 1U);
  EXPECT_EQ(shards.samples()[0].modality, Modality::video);
  EXPECT_NE(shards.assumption().find("2 frames per second in the videos of 1 samples"), std::string::npos)
      << shards.assumption();
  const SampleContent content = shards.read("a.jsonl/1", true);
  EXPECT_EQ(grays_of(content, {}, data.model.architecture->picture.patch),
            (std::vector{0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110}));
  EXPECT_EQ(shape_of(data.model, "a", content).encoder(), shards.samples()[0].encoder());
}

/// 8 frames at 4 a second last 2 s. Qwen2.5-VL samples 4 of them, evenly from 0 to 7: 0, 2.3, 4.7 and 7.
/// These 2 per second make slots of 1 s, which are positions_per_s positions apart.
TEST(VideoData, FrameRateDecidesWhatIsSampled) {
  const Data data("qwen2.5-vl");
  data.write_frames("v", 8);
  const ShardData shards = data.open({R"("video": "v", "fps": 4)", R"("video": "v", "sample_fps": 2)"});
  EXPECT_EQ(shards.assumption(), "");
  const int patch = data.model.architecture->picture.patch;
  const SampleContent content = shards.read("a.jsonl/1", true);
  EXPECT_EQ(grays_of(content, {}, patch), (std::vector{0, 20, 50, 70}));
  EXPECT_EQ(shards.read("a.jsonl/2", true).sequences.size(), 4U);
  // The words before the video are one token, <|vision_start|>.
  const double step = data.model.architecture->picture.positions_per_s;
  const std::vector<std::int32_t>& positions = content.tokens.positions;
  const std::int64_t tokens = content.sequences[0].rows / 4;
  EXPECT_EQ(positions[3], 1);
  EXPECT_EQ(positions[static_cast<std::size_t>(3 * (1 + tokens))], 1 + static_cast<std::int32_t>(step));
}

/// 66 frames at 10 a second last 6.6 s, of which 12 frames are sampled: slots of 1.1 s, and 2 positions a
/// second. In single precision, the slot at 5.5 s is at position 11; in double precision, at 10.999.
TEST(VideoData, TimesAreRoundedInSinglePrecision) {
  const Data data("qwen2.5-vl");
  const MediumContent video = qwen_picture(*data.model.architecture, {6, 2, 2}, {}, 2 / (12.0 / 66 * 10));
  EXPECT_EQ(video.positions[5][0], 11);
}

/// Pictures without a rate, or with 'sample_fps', were sampled already: Qwen2.5-VL takes all 5, and the last
/// one twice, as qwen-vl-utils does. With 'fps', it samples 4 of 5 frames, and Qwen3-VL samples 3 frames of
/// the second one, whose minimum the folder sets to 2: round(5 / 3 * 2) is 3. One picture is a slot.
TEST(VideoData, SampledPicturesAreAllTaken) {
  const Data data("qwen2.5-vl");
  data.write_frames("v", 5);
  data.write_frames("one", 1);
  const ShardData shards = data.open({R"("video": "v")", R"("video": "v", "sample_fps": 3)",
                                      R"("video": "v", "sample_fps": 3, "fps": 3)",
                                      R"("video": "v", "fps": 3)", R"("video": "one")"});
  const int patch = data.model.architecture->picture.patch;
  for (const char* id : {"a.jsonl/1", "a.jsonl/2", "a.jsonl/3"})
    EXPECT_EQ(grays_of(shards.read(id, true), {}, patch), (std::vector{0, 10, 20, 30, 40, 40})) << id;
  EXPECT_EQ(grays_of(shards.read("a.jsonl/4", true), {}, patch), (std::vector{0, 10, 30, 40}));
  EXPECT_EQ(grays_of(shards.read("a.jsonl/5", true), {}, patch), (std::vector{0, 0}));
  for (const Sample& sample : shards.samples())
    EXPECT_EQ(shape_of(data.model, "a", shards.read(sample.id, true)).encoder(), sample.encoder());
  const Data qwen3("qwen3-vl");
  qwen3.write_frames("v", 5);
  qwen3.write("video_preprocessor_config.json", R"({"fps": 2, "min_frames": 2})");
  EXPECT_EQ(qwen3.open({R"("video": "v", "sample_fps": 3)"}).samples()[0].encoder().sequences, 2);
}

/// Qwen's data name the frames of a video in a list, in a part or next to the conversation.
TEST(VideoData, ListOfPathsIsAVideo) {
  const Data data("qwen2.5-vl");
  data.write_frames("v", 4);
  const std::string frames = R"(["v/frame-3.png", "v/frame-1.png", "v/frame-0.png", "v/frame-2.png"])";
  const ShardData shards = data.open({"\"video\": " + frames, "\"videos\": [" + frames + "]"});
  const int patch = data.model.architecture->picture.patch;
  for (const char* id : {"a.jsonl/1", "a.jsonl/2"})
    EXPECT_EQ(grays_of(shards.read(id, true), {}, patch), (std::vector{30, 10, 0, 20})) << id;
  const std::string part =
      R"({"messages": [{"role": "user", "content": [{"type": "video", "fps": 4, "video": )" + frames +
      R"(}]}, {"role": "assistant", "content": "x"}]})";
  DatasetOptions options;
  options.chat_form = "plain";
  const ShardData parts(data.model, data.folder.path(), data.write("b.jsonl", part), options);
  EXPECT_EQ(parts.assumption(), "");
  EXPECT_EQ(grays_of(parts.read("b.jsonl/1", true), {}, patch), (std::vector{30, 10, 0, 20}));
}

/// The seconds come from transformers, in tests/golden/io/grids.json for 7 frames, 2 a second; the last
/// frame is repeated. 160 x 160 pixels are 5 x 5 tokens of 32 pixels. transformers 5.24 replaces only the
/// template's token between the outer marks.
TEST(VideoData, Qwen3VlWritesTheTimeBeforeEachSlot) {
  const Data data("qwen3-vl");
  data.write_frames("v", 7, 90, 100);
  const ShardData shards = data.open({R"("videos": ["v"])"});
  const SampleContent content = shards.read("a.jsonl/1", true);
  EXPECT_EQ(
      data.words_of(content),
      "<|vision_start|><0.2 seconds><|vision_start|><|vision_end|><1.2 seconds><|vision_start|><|vision_end|>"
      "<2.2 seconds><|vision_start|><|vision_end|><3.0 seconds><|vision_start|><|vision_end|><|vision_end|>x");
  ASSERT_EQ(content.sequences.size(), 4U);
  for (const EncoderSequence& sequence : content.sequences) EXPECT_EQ(sequence.rows, 4 * 25);
  PixelScale half;
  half.mean = half.deviation = {0.5, 0.5, 0.5};
  EXPECT_EQ(grays_of(content, half, 16), (std::vector{0, 10, 20, 30, 40, 50, 60, 60}));
  EXPECT_EQ(shape_of(data.model, "a", content).encoder(), shards.samples()[0].encoder());
}

/// The limits for all frames together are in the folder's file: 7 frames of 90 x 100 pixels are 2.197 times
/// as many as the 28,672 permitted, so sides shrink by 1.482, to 60.7 x 67.5 and down to whole tokens of 32
/// pixels: 1 x 2 tokens, 8 patches. One frame a second leaves 4 of 7 frames.
TEST(VideoData, Qwen3VlHasTheSettingsOfItsFolder) {
  const Data data("qwen3-vl");
  data.write_frames("v", 7, 90, 100);
  data.write("video_preprocessor_config.json",
             R"({"size": {"shortest_edge": 1024, "longest_edge": 28672}, "fps": 2, "min_frames": 2})");
  const ShardData shards = data.open({R"("videos": ["v"])"});
  EXPECT_EQ(shards.samples()[0].encoder(), (Workload{4, 4 * 8, 4 * 8 * 8}));
  data.write("video_preprocessor_config.json", R"({"fps": 1, "min_frames": 2})");
  EXPECT_EQ(data.open({R"("videos": ["v"])"}).samples()[0].encoder().sequences, 2);
  data.write("video_preprocessor_config.json", R"({"patch_size": 14})");
  EXPECT_NE(data.refusal(R"("videos": ["v"])").find("expected 'patch_size' 16"), std::string::npos);
}

/// One frame a second: of 6 frames at 2 a second, frames 0, 2 and 4. The tile of 5 x 5 patches is pooled to
/// 3 x 3; one newline ends the video.
TEST(VideoData, LlavaOneVisionTakesAFrameASecond) {
  const Data data("llava-onevision-qwen2");
  data.write_frames("v", 6);
  const ShardData shards = data.open({R"("videos": ["v"])"});
  EXPECT_EQ(shards.samples()[0].encoder().sequences, 3);
  EXPECT_EQ(shards.samples()[0].encoder_output_tokens, 3 * 9 + 1);
  const SampleContent content = shards.read("a.jsonl/1", true);
  ASSERT_EQ(content.sequences.size(), 3U);
  const PixelScale scale = LlavaProcessor().scale;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto value = *reinterpret_cast<const float*>(content.sequences[i].values.data());
    EXPECT_EQ(std::lround((value * scale.deviation[0] + scale.mean[0]) * 255), 20 * static_cast<int>(i));
  }
}

/// Damage that only decoding finds, an empty folder, frames of different sizes and other problems are the
/// sample's own.
TEST(VideoData, BadVideosAreLeftOutOnRequest) {
  const Data data("qwen2.5-vl");
  for (const char* video : {"good", "damaged", "sizes"}) data.write_frames(video, 4);
  const std::string png = gray_png(64, 48, 10);
  data.write("damaged/frame-2.png", png.substr(0, png.size() - 20));
  data.write("sizes/frame-3.png", gray_png(48, 64, 10));
  std::filesystem::create_directory(data.folder.path() + "/empty");
  data.write_frames("one", 1);
  const std::pair<const char*, const char*> bad[] = {
      {R"("video": "sizes")",
       "sizes/frame-3.png: expected a frame of 64x48, as the video's first frame, found 48x64"},
      {R"("video": "empty")", "expected a video's frames, .jpg, .png or .webp, found none in the folder"},
      {R"("video": "one", "fps": 2)", "one: expected a video of at least 2 frames, found 1"},
      {R"("video": "none")", "none: cannot be opened"},
      {R"("video": "good", "fps": 2, "sample_fps": 1)", "expected 'fps' or 'sample_fps', found 2 and 1"},
      {R"("video": "good", "fps": 0)", "fps"},
      {R"("video": [[]])", "expected the frames of a video, found none"},
      {R"("video": "none.mp4", "fps": 2)", "but a video file has its own rate"}};
  std::vector<std::string> lines = {R"("video": "good")", R"("video": "damaged")"};
  for (const auto& [keys, expected] : bad) {
    const std::string said = data.refusal(keys);
    EXPECT_NE(said.find(expected), std::string::npos) << said;
    EXPECT_NE(said.find("a.jsonl: line 1"), std::string::npos) << said;
    lines.emplace_back(keys);
  }
  const ShardData shards = data.open(lines, true);
  EXPECT_EQ(shards.samples().size(), 1U);
  ASSERT_EQ(shards.left_out().size(), 1 + std::size(bad));
  EXPECT_NE(shards.left_out()[0].why.find("damaged/frame-2.png"), std::string::npos)
      << shards.left_out()[0].why;
  for (const LeftOutSample& sample : shards.left_out()) EXPECT_TRUE(sample.is_bad) << sample.why;
}

TEST(VideoData, FamiliesWithoutVideosSaySo) {
  for (const auto& [name, expected] :
       {std::pair{"llava-1.5", "takes no videos"}, std::pair{"internvl-300m-style", "videos of InternVL"}}) {
    const std::string folder = std::string(DFLOP_SOURCE_DIR) + "/tests/golden/models/" + name;
    const MediaReader reader(parse_hugging_face(read_text_file(folder + "/config.json"), folder), folder);
    const Data data("qwen2.5-vl");
    StoredMedium video;
    video.place = "v";
    video.frames.push_back({"f", data.write("f.png", gray_png(4, 4, 1)), 0, StoredMedium::kToEnd, ""});
    const auto source = open_video(video, ExifRule::upright);
    const std::string said = testing::input_error([&] { static_cast<void>(reader.video(*source, false)); });
    EXPECT_NE(said.find(expected), std::string::npos) << said;
  }
}

/// A tar's pictures are frames if the conversation has one <video> and nothing else.
TEST(VideoData, TarHasTheFramesOfAVideo) {
  const Data data("qwen2.5-vl");
  std::string tar = testing::tar_entry(
      "a.json",
      R"({"fps": 2, "conversations": [{"from": "human", "value": "<video>"}, {"from": "gpt", "value": "x"}]})");
  for (const int i : {0, 10, 2, 1})
    tar += testing::tar_entry("a." + std::to_string(i) + ".png",
                              gray_png(64, 48, static_cast<std::uint8_t>(10 * i)));
  const std::string path = data.write("v.tar", tar + std::string(1024, '\0'));
  const ShardData shards(data.model, data.folder.path(), path, {});
  EXPECT_EQ(shards.assumption(), "");
  EXPECT_EQ(grays_of(shards.read("v.tar/a", true), {}, data.model.architecture->picture.patch),
            (std::vector{0, 10, 20, 100}));
}

/// The rules keep the first and last frame. The numbers come from torch.linspace(0, 29, 14).round() and
/// numpy.linspace(0, 29, 14).round(); for LLaVA-OneVision, 70 frames at one a second exceed 32:
/// numpy.linspace(0, 69, 32, dtype=int).
TEST(VideoData, SampledFramesAreEvenlySpread) {
  const std::vector<std::int64_t> even = {0, 2, 4, 7, 9, 11, 13, 16, 18, 20, 22, 25, 27, 29};
  QwenProcessor qwen;
  EXPECT_EQ(qwen_video_frames({30, 4.2, {64, 48}}, qwen).frames, even);
  qwen.video.emplace();
  EXPECT_EQ(qwen_video_frames({30, 4.2, {64, 48}}, qwen).frames, even);
  // 6 frames at 4 a second are 3 at 2 a second: 0, 2.5 and 5. numpy rounds halves to even.
  qwen.video->min_frames = 2;
  EXPECT_EQ(qwen_video_frames({6, 4, {64, 48}}, qwen).frames, (std::vector<std::int64_t>{0, 2, 5}));
  // A frame each 4 s is slower than a frame a second: all are taken.
  EXPECT_EQ(llava_video_frames({3, 0.25, {64, 48}}, {}).frames, (std::vector<std::int64_t>{0, 1, 2}));
  // All frames of a sampled video are taken. Its limit counts the repeated one: 302 frames of 860 x 760
  // pixels have 0.9 * 128,000 * 784 * 2 / 302 = 598,124 pixels each, so sides shrink by 1.0453 to 822.7 x
  // 727.0, or 29 x 25 tokens; with 301 frames they would be 29 x 26.
  const FrameChoice all = qwen_video_frames({301, 2, {860, 760}, true}, QwenProcessor());
  EXPECT_EQ(all.frames.size(), 301U);
  EXPECT_EQ(all.frames[300], 300);
  EXPECT_EQ(all.size, (ImageSize{29 * 28, 25 * 28}));
  EXPECT_EQ(qwen_video_frames({1, 2, {64, 48}, true}, QwenProcessor()).frames, std::vector<std::int64_t>{0});
  const FrameChoice llava = llava_video_frames({70, 1, {64, 48}}, {});
  ASSERT_EQ(llava.frames.size(), 32U);
  EXPECT_EQ(std::vector(llava.frames.begin(), llava.frames.begin() + 5),
            (std::vector<std::int64_t>{0, 2, 4, 6, 8}));
  EXPECT_EQ(llava.frames[30], 66);
  EXPECT_EQ(llava.frames.back(), 69);
}

/// Resized sizes of transformers, in tests/golden/io/grids.json: height, width.
TEST(VideoData, Qwen3VlLimitsAllFramesTogether) {
  EXPECT_EQ(qwen3_video_size({640, 480}, 4), (ImageSize{512, 384}));
  EXPECT_EQ(qwen3_video_size({90, 100}, 7), (ImageSize{160, 160}));
  EXPECT_EQ(qwen3_video_size({1280, 720}, 32), (ImageSize{192, 96}));
  EXPECT_EQ(qwen3_video_size({7000, 30}, 4), std::nullopt);
}

/// EXIF orientation 6 turns 64 x 48 pixels to 48 x 64: other patches, unless the orientation is ignored. The
/// data's fingerprint tells both apart.
TEST(VideoData, ExifOrientationCanBeIgnored) {
  const Data data("qwen2.5-vl");
  const std::string exif("MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0", 26);
  for (int i = 0; i < 4; ++i)
    data.write("v/" + std::to_string(i) + ".png", gray_png(128, 48, static_cast<std::uint8_t>(10 * i), exif));
  const ShardData upright = data.open({R"("video": "v")"});
  const ShardData stored = data.open({R"("video": "v")"}, false, ExifRule::ignore);
  const auto first_row = [](const ShardData& shards) {
    const SampleContent content = shards.read("a.jsonl/1", true);
    const std::vector<std::int32_t>& positions = content.sequences[0].positions;  // row, column
    std::int32_t rows = 0;
    std::int32_t columns = 0;
    for (std::size_t i = 0; i < positions.size(); i += 2) {
      rows = std::max(rows, positions[i]);
      columns = std::max(columns, positions[i + 1]);
    }
    return rows < columns;
  };
  EXPECT_FALSE(first_row(upright));
  EXPECT_TRUE(first_row(stored));
  EXPECT_NE(upright.fingerprint(), stored.fingerprint());
}

/// EXIF data behind the pixels of frames of over 16 KiB turn 320 x 60 pixels, as Pillow does.
TEST(VideoData, ExifDataBehindPixelsTurnFrames) {
  const Data data("qwen2.5-vl");
  std::string rows;
  Random random(2);
  for (int y = 0; y < 60; ++y) {
    rows += '\0';
    for (int x = 0; x < 320; ++x) rows += static_cast<char>(random.below(256));
  }
  const std::string exif("MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0", 26);
  std::string png = testing::png_file(320, 60, 8, 0, rows);
  png.insert(png.size() - 12, testing::png_chunk("eXIf", exif));
  ASSERT_GT(png.size(), 16U * 1024);
  for (int i = 0; i < 2; ++i) data.write("v/" + std::to_string(i) + ".png", png);
  const ShardData shards = data.open({R"("video": "v")"});
  const SampleContent shape = shards.read("a.jsonl/1", false);
  EXPECT_EQ(shape.sequences[0].positions, shards.read("a.jsonl/1", true).sequences[0].positions);
  std::int32_t columns = 0;
  for (std::size_t i = 1; i < shape.sequences[0].positions.size(); i += 2)
    columns = std::max(columns, shape.sequences[0].positions[i] + 1);
  EXPECT_LT(columns, shape.sequences[0].rows / columns);
}

/// Both files have 10 frames at 5 a second: Qwen takes 4 of them.
TEST(VideoData, VideoFilesAreRead) {
  if (!reads_video_files()) GTEST_SKIP() << "built without FFmpeg";
  const Data data("qwen2.5-vl");
  const std::string bytes = read_text_file(DFLOP_SOURCE_DIR "/tests/golden/io/frames.mkv");
  data.write("frames.mkv", bytes);
  const ShardData shards = data.open({R"("videos": ["frames.mkv"])"}, true);
  EXPECT_EQ(shards.assumption(), "");
  const int patch = data.model.architecture->picture.patch;
  EXPECT_EQ(grays_of(shards.read("a.jsonl/1", true), {}, patch),
            (std::vector{10, 70, 130, 190}));  // 0, 3, 6, 9
  const std::string path = data.write("v.tar", testing::tar_of_sample(bytes, "mkv", "<video>"));
  const ShardData tar(data.model, data.folder.path(), path, {});
  EXPECT_EQ(grays_of(tar.read("v.tar/one", true), {}, patch), (std::vector{10, 70, 130, 190}));
}

}  // namespace video_data_test
}  // namespace dflop
