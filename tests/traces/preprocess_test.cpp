#include "traces/preprocess/preprocess.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "core/support/random.hpp"
#include "traces/data/records.hpp"
#include "traces/preprocess/rules.hpp"

namespace dflop {
namespace preprocess_test {

Record make_record(Modality modality) {
  Record record;
  record.id = "r";
  record.modality = modality;
  record.text_tokens = 10;
  record.row = 17;
  return record;
}

Record images(std::vector<ImageSize> sizes) {
  Record record = make_record(sizes.size() == 1 ? Modality::image : Modality::multi_image);
  record.image_count = static_cast<std::int32_t>(sizes.size());
  record.images = std::move(sizes);
  return record;
}

Record images_without_sizes(int count) {
  Record record = make_record(Modality::multi_image);
  record.image_count = count;
  return record;
}

Record video(std::optional<std::int64_t> frames, std::optional<double> seconds, std::optional<double> fps) {
  Record record = make_record(Modality::video);
  record.video_frames = frames;
  record.video_s = seconds;
  record.video_fps = fps;
  return record;
}

Record audio(double seconds) {
  Record record = make_record(Modality::audio);
  record.audio_s = seconds;
  return record;
}

PreprocessOptions with_rule(const char* rule) {
  PreprocessOptions options;
  options.rule = rule;
  return options;
}

Preprocessed apply(const Record& record, const PreprocessOptions& options) {
  return preprocess({&record, 1}, options, "t.csv");
}

Sample encode(const Record& record, const char* rule) {
  return apply(record, with_rule(rule)).samples.at(0);
}

std::string error_of(const Record& record, const PreprocessOptions& options,
                     ErrorKind kind = ErrorKind::input) {
  try {
    apply(record, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(Preprocess, TextHasNoEncoderSequences) {
  for (const std::string_view rule : preprocess_rules()) {
    const Sample sample = encode(make_record(Modality::text), std::string(rule).c_str());
    EXPECT_TRUE(sample.encoder_sequences.empty());
    EXPECT_EQ(sample.encoder_output_tokens, 0);
    EXPECT_EQ(sample.llm_tokens, 10);
  }
}

TEST(Preprocess, LlavaMultiImageIsOneTileEach) {
  // Three tiles of 27² = 729 tokens. A newline each makes 730 LLM tokens, plus 10 text tokens: 3 * 730 + 10.
  for (const char* rule : {"llava-ov", "llava-ov-dflop"}) {
    const Sample sample = encode(images({{100, 100}, {2000, 50}, {3, 4}}), rule);
    EXPECT_EQ(sample.encoder(), (Workload{3, 3 * 729, 3 * 729 * 729}));
    EXPECT_EQ(sample.encoder_output_tokens, 2190);
    EXPECT_EQ(sample.llm_tokens, 2200);
  }
}

TEST(Preprocess, LlavaVideoRoundsHalfFramesToEven) {
  // 2.5 fps rounds to a step of 2: ceil(9 / 2) = 5 frames. 3.5 fps to a step of 4: ceil(9 / 4) = 3.
  EXPECT_EQ(encode(video(9, {}, 2.5), "llava-ov").encoder().sequences, 5);
  EXPECT_EQ(encode(video(9, {}, 3.5), "llava-ov").encoder().sequences, 3);
  // 0.2 fps would round to a step of 0, so every frame is kept.
  EXPECT_EQ(encode(video(9, {}, 0.2), "llava-ov").encoder().sequences, 9);
}

TEST(Preprocess, LlavaGridCutsPaddingAndScalesDown) {
  // 384x384 fills one tile: 27 rows of 27 tokens and a newline: 27 * 28 = 756, and 729 for the base tile.
  EXPECT_EQ(encode(images({{384, 384}}), "llava-ov").encoder_output_tokens, 729 + 756);
  // 2304x2304 fills 6x6 tiles, 162 tokens a side; 162² / (9 * 729) = 4, scale 2: 81 rows of 81 + 1.
  const Sample large = encode(images({{2304, 2304}}), "llava-ov-dflop");
  EXPECT_EQ(large.encoder().sequences, 37);
  EXPECT_EQ(large.encoder_output_tokens, 81 * 82);
}

TEST(Preprocess, InternVlImagesShareTwelveTiles) {
  // Two images may have 6 tiles each: 1344x896 is 3:2, exactly 3x2 tiles and a thumbnail. 448x448 is one
  // tile, without a thumbnail.
  const Sample two = encode(images({{1344, 896}, {448, 448}}), "internvl2.5");
  EXPECT_EQ(two.encoder(), (Workload{8, 8 * 1025, 8 * 1025 * 1025}));
  EXPECT_EQ(two.llm_tokens, 8 * 256 + 10);
  // Seven images have 12 / 7 = 1 tile each, so sizes do not matter. Twenty have 12 / 20 = 0, raised to 1.
  for (const int count : {7, 20}) {
    const Preprocessed result = apply(images_without_sizes(count), with_rule("internvl2.5"));
    EXPECT_EQ(result.samples[0].encoder().sequences, count);
    EXPECT_FALSE(result.assumptions.any());
  }
}

TEST(Preprocess, InternVlVideoFramesAreUniformAndIndependentOfOrder) {
  std::vector<Record> records;
  for (int i = 0; i < 5000; ++i) {
    records.push_back(video(100, {}, {}));
    records.back().id = "video " + std::to_string(i);
  }
  const PreprocessOptions options = with_rule("internvl2.5");
  const Preprocessed forward = preprocess(records, options, "t.csv");
  EXPECT_FALSE(forward.assumptions.any());
  std::vector<int> seen(64);
  for (const Sample& sample : forward.samples)
    ++seen.at(static_cast<std::size_t>(sample.encoder().sequences));
  // 5000 / 25 = 200 are expected of each of 8..32, with a standard deviation of sqrt(5000 * 0.04 * 0.96) =
  // 13.9; five of them are 70.
  for (std::size_t frames = 0; frames < seen.size(); ++frames) {
    EXPECT_NEAR(seen[frames], frames >= 8 && frames <= 32 ? 200 : 0, frames >= 8 && frames <= 32 ? 70 : 0)
        << frames;
  }
  std::reverse(records.begin(), records.end());
  const Preprocessed backward = preprocess(records, options, "t.csv");
  for (std::size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(backward.samples[i].encoder(), forward.samples[records.size() - 1 - i].encoder());
  }
  PreprocessOptions reseeded = options;
  reseeded.seed = 2;
  const Preprocessed other = preprocess(records, reseeded, "t.csv");
  int same = 0;
  for (std::size_t i = 0; i < records.size(); ++i)
    same += other.samples[i].encoder() == backward.samples[i].encoder();
  // Independent draws agree in 1 of 25: 200 expected.
  EXPECT_NEAR(same, 200, 70);
}

/// Sum of squared window sizes, patch by patch as get_window_index makes them: 8x8 patches, cut at the
/// border.
std::int64_t window_sum_of_squares(std::int64_t columns, std::int64_t rows) {
  std::int64_t sum = 0;
  for (std::int64_t x = 0; x < columns; x += 8) {
    for (std::int64_t y = 0; y < rows; y += 8) {
      const std::int64_t patches =
          std::min<std::int64_t>(8, columns - x) * std::min<std::int64_t>(8, rows - y);
      sum += patches * patches;
    }
  }
  return sum;
}

TEST(Preprocess, Qwen25AttentionEqualsWindowsOneByOne) {
  Random random(3);
  for (int trial = 0; trial < 500; ++trial) {
    const ImageSize size = {static_cast<std::int32_t>(20 + random.below(3000)),
                            static_cast<std::int32_t>(20 + random.below(3000))};
    const ImageSize resized = qwen_resize(size, 4 * 784, 16384 * 784);
    const Workload work = encode(images({size}), "qwen2.5-vl").encoder();
    const std::int64_t windows = window_sum_of_squares(resized.width / 14, resized.height / 14);
    EXPECT_EQ(32 * work.attention_pairs, 28 * windows + 4 * work.tokens * work.tokens);
    // Windowed attention never exceeds full attention, which qwen2-vl uses for images within both limits.
    EXPECT_LE(work.attention_pairs, work.tokens * work.tokens);
  }
}

TEST(Preprocess, QwenResizeKeepsMultiplesAndLimits) {
  Random random(4);
  for (int trial = 0; trial < 2000; ++trial) {
    const ImageSize size = {static_cast<std::int32_t>(1 + random.below(5000)),
                            static_cast<std::int32_t>(1 + random.below(5000))};
    if (std::max(size.width, size.height) > 20 * std::min(size.width, size.height)) continue;
    const ImageSize resized = qwen_resize(size, 56 * 56, 1280 * 784);
    EXPECT_EQ(resized.width % 28, 0);
    EXPECT_EQ(resized.height % 28, 0);
    EXPECT_GE(resized.width * resized.height, 56 * 56);
    EXPECT_LE(resized.width * resized.height, 1280 * 784);
  }
}

TEST(Preprocess, QwenImagesGroupEqualSizes) {
  // 56x56: 2x2 LLM tokens, 16 patches. 84x56: 3x2 LLM tokens, 24 patches. Full attention in qwen2-vl:
  // patches².
  const Sample sample = encode(images({{56, 56}, {56, 56}, {84, 56}}), "qwen2-vl");
  EXPECT_EQ(sample.encoder_sequences, (std::vector<EncoderSequences>{{2, 16, 256}, {1, 24, 576}}));
  EXPECT_EQ(sample.llm_tokens, 4 + 4 + 6 + 10);
}

TEST(Preprocess, QwenRejectsSizesThatUpstreamRejects) {
  EXPECT_EQ(error_of(images({{6000, 29}}), with_rule("qwen2.5-vl")),
            "t.csv:row 17, column 'images': expected sides in a ratio of at most 200, found 6000x29");
  EXPECT_EQ(error_of(video(1, {}, 30), with_rule("qwen2-vl")),
            "t.csv:row 17, column 'video_frames': expected a video of at least 2 frames, found 1");
  EXPECT_EQ(encode(images({{6000, 30}}), "qwen2.5-vl").encoder().sequences, 1);  // exactly 200 is allowed
}

TEST(Preprocess, QwenVideoFrames) {
  EXPECT_EQ(qwen_sampled_frames({300, 30}), 20);      // 10 s at 2 frames per second
  EXPECT_EQ(qwen_sampled_frames({30, 30}), 4);        // 2 wanted, but at least 4
  EXPECT_EQ(qwen_sampled_frames({3, 30}), 2);         // 3 exist, rounded down to an even 2
  EXPECT_EQ(qwen_sampled_frames({345, 30}), 22);      // 11.5 s: 23 rounded down to even
  EXPECT_EQ(qwen_sampled_frames({900000, 30}), 768);  // the upper limit
}

TEST(Preprocess, AudioIsCutIntoChunks) {
  // 75 s = two full chunks of 750 tokens and 15 s: 1500 mel frames, (1500 + 1) / 4 = 375 tokens.
  const Sample sample = encode(audio(75), "qwen2-audio");
  EXPECT_EQ(sample.encoder_sequences, (std::vector<EncoderSequences>{{3, 1500, 1500 * 1500}}));
  EXPECT_EQ(sample.llm_tokens, 750 + 750 + 375 + 10);
  EXPECT_EQ(encode(audio(30), "qwen2-audio").encoder().sequences, 1);
  // 19.99 s are 1999 mel frames (1998 if counted in floating point): (1999 + 1) / 4 = 500.
  EXPECT_EQ(encode(audio(19.99), "qwen2-audio").encoder_output_tokens, 500);
  // A single sample of silence still costs a chunk.
  EXPECT_EQ(encode(audio(0.001), "qwen2-audio").encoder().sequences, 1);
}

TEST(Preprocess, LongSequencesAreCut) {
  PreprocessOptions options = with_rule("llava-ov");
  options.max_tokens = 735;
  Record two = images({{1, 1}, {1, 1}});  // 2 * 730 visual and 10 text tokens
  EXPECT_EQ(apply(two, options).samples[0].llm_tokens, 735);
  EXPECT_EQ(apply(two, options).samples[0].encoder_output_tokens, 735);
  EXPECT_EQ(apply(two, options).samples[0].encoder().sequences, 2);  // the encoder still sees both
  options.max_tokens = 1465;
  EXPECT_EQ(apply(two, options).samples[0].llm_tokens, 1465);
  EXPECT_EQ(apply(two, options).samples[0].encoder_output_tokens, 1460);
}

TEST(Preprocess, GapsFollowFromOtherFields) {
  // 100 frames in 10 s are 10 fps: one frame per second is every tenth frame, 10 frames.
  Preprocessed result = apply(video(100, 10, {}), with_rule("llava-ov"));
  EXPECT_EQ(result.samples[0].encoder().sequences, 10);
  EXPECT_FALSE(result.assumptions.any());
  // 10 s at 10 fps are 100 frames.
  result = apply(video({}, 10, 10), with_rule("llava-ov"));
  EXPECT_EQ(result.samples[0].encoder().sequences, 10);
  EXPECT_FALSE(result.assumptions.any());
}

TEST(Preprocess, OtherGapsAreAssumedAndCounted) {
  PreprocessOptions options = with_rule("llava-ov");
  // 100 frames at the assumed 20 fps: every twentieth frame, 5 frames. LLaVA needs no video size.
  options.assume_video.fps = 20;
  Preprocessed result = apply(video(100, {}, {}), options);
  EXPECT_EQ(result.samples[0].encoder().sequences, 5);
  EXPECT_EQ(result.assumptions.video_fps, 1);
  EXPECT_EQ(result.assumptions.video_sizes, 0);
  // Only seconds: 8 s at 20 fps are 160 frames, 8 sampled.
  result = apply(video({}, 8, {}), options);
  EXPECT_EQ(result.samples[0].encoder().sequences, 8);
  EXPECT_EQ(result.assumptions.video_fps, 1);

  options = with_rule("qwen2-vl");
  options.assume_image = {56, 84};
  result = apply(images_without_sizes(3), options);
  EXPECT_EQ(result.samples[0].encoder_sequences, (std::vector<EncoderSequences>{{3, 24, 576}}));
  EXPECT_EQ(result.assumptions.image_sizes, 1);  // rows, not images
  options.assume_video.size = {448, 448};  // 16x16 LLM tokens: 200704 pixels are within the video limits
  result = apply(video(4, {}, 30), options);
  EXPECT_EQ(result.samples[0].encoder_output_tokens, 2 * 256);
  EXPECT_EQ(result.assumptions.video_sizes, 1);
}

TEST(Preprocess, StrictRejectsAssumptions) {
  PreprocessOptions options = with_rule("qwen2.5-vl");
  options.strict = true;
  const std::string head = "t.csv:row 17, column '";
  const std::string message = "': expected a value under --strict, found an empty field; without --strict, ";
  EXPECT_EQ(error_of(images_without_sizes(2), options),
            head + "images" + message + "--assume-image WxH supplies it");
  EXPECT_EQ(error_of(video(100, {}, {}), options),
            head + "video_fps" + message + "--assume-video WxH@FPS supplies it");
  EXPECT_EQ(error_of(video(100, {}, 30), options),
            head + "video_wh" + message + "--assume-video WxH@FPS supplies it");
  options.rule = "llava-ov";
  EXPECT_EQ(apply(images_without_sizes(2), options).samples.size(), 1u);  // without need of sizes
}

TEST(Preprocess, ModalitiesThatTheModelLacks) {
  PreprocessOptions options = with_rule("qwen2-audio");
  EXPECT_EQ(error_of(images({{1, 1}}), options),
            "t.csv:row 17, column 'modality': rule 'qwen2-audio' takes text,audio, found image; --modalities "
            "text,audio "
            "leaves such records out");
  options.modalities = {Modality::audio};
  const std::vector<Record> records = {images({{1, 1}}), audio(3), make_record(Modality::text)};
  const Preprocessed result = preprocess(records, options, "t.csv");
  ASSERT_EQ(result.samples.size(), 1u);
  EXPECT_EQ(result.samples[0].modality, Modality::audio);
  EXPECT_EQ(result.left_out, 2);
  options.modalities = {Modality::audio, Modality::video};
  EXPECT_EQ(error_of(audio(3), options, ErrorKind::usage),
            "--modalities: rule 'qwen2-audio' takes text,audio, found video");
}

TEST(Preprocess, RulesAndTheirModalities) {
  EXPECT_EQ(preprocess_rules(),
            (std::vector<std::string_view>{"llava-1.5", "llava-next", "llava-ov", "llava-ov-dflop",
                                           "internvl2.5", "qwen2-vl", "qwen2.5-vl", "qwen2.5-omni",
                                           "qwen3-vl", "qwen2-audio", "tiny-vlm", "text"}));
  EXPECT_EQ(rule_modalities("text"), (std::vector<Modality>{Modality::text}));
  for (const char* rule : {"llava-1.5", "llava-next"}) {
    EXPECT_EQ(rule_modalities(rule),
              (std::vector<Modality>{Modality::text, Modality::image, Modality::multi_image}));
  }
  EXPECT_EQ(rule_modalities("qwen2-audio"), (std::vector<Modality>{Modality::text, Modality::audio}));
  EXPECT_EQ(rule_modalities("internvl2.5"),
            (std::vector<Modality>{Modality::text, Modality::image, Modality::multi_image, Modality::video}));
  EXPECT_THROW(rule_modalities("llava"), Error);
  EXPECT_EQ(
      error_of(audio(3), with_rule("llava")),
      "unknown preprocessing rule 'llava'; expected one of llava-1.5, llava-next, llava-ov, llava-ov-dflop, "
      "internvl2.5, qwen2-vl, qwen2.5-vl, qwen2.5-omni, qwen3-vl, qwen2-audio, tiny-vlm, text");
}

TEST(Preprocess, OptionsOutOfRange) {
  PreprocessOptions options = with_rule("llava-ov");
  options.assume_image = {0, 480};
  EXPECT_EQ(error_of(audio(3), options, ErrorKind::usage),
            "--assume-image: expected sides from 1 to 1000000, found 0x480");
  options = with_rule("llava-ov");
  options.assume_video.size = {640, 1000001};
  EXPECT_EQ(error_of(audio(3), options, ErrorKind::usage),
            "--assume-video: expected sides from 1 to 1000000, found 640x1000001");
  options = with_rule("llava-ov");
  options.assume_video.fps = 0;
  EXPECT_EQ(error_of(audio(3), options, ErrorKind::usage).substr(0, 15), "--assume-video:");
  options = with_rule("llava-ov");
  options.max_tokens = -1;
  EXPECT_EQ(error_of(audio(3), options, ErrorKind::usage).substr(0, 13), "--max-tokens:");
}

TEST(Preprocess, ExtremeShapesStayInRange) {
  // Property: for any record within the loader's limits, however absurd, the squares of the counts fit 64
  // bits.
  Random random(5);
  const auto side = [&] {
    return static_cast<std::int32_t>(1 + random.below(random.below(2) ? kMaxImageSide : 50));
  };
  for (int trial = 0; trial < 2000; ++trial) {
    Record record = random.below(2)
                        ? images({{side(), side()}})
                        : video(1 + static_cast<std::int64_t>(random.below(kMaxFrames)),
                                kMinSeconds + random.uniform() * kMaxSeconds * random.uniform(), {});
    record.video_size = ImageSize{side(), side()};
    for (const std::string_view rule : preprocess_rules()) {
      const std::vector<Modality> taken = rule_modalities(rule);
      if (std::find(taken.begin(), taken.end(), record.modality) == taken.end()) continue;
      try {
        const Sample sample = encode(record, std::string(rule).c_str());
        EXPECT_GT(sample.encoder().tokens, 0);
        EXPECT_GT(sample.encoder().attention_pairs, 0);
        EXPECT_GE(sample.llm_tokens, record.text_tokens);
        EXPECT_LT(sample.llm_tokens, 3'000'000'000);
      } catch (const Error& error) {  // qwen's limits
        EXPECT_EQ(error.kind(), ErrorKind::input);
      }
    }
  }
}

// Counted in the tables with a separate program: 1,970 multi-image rows lack sizes, 1,250 of them with at
// most six images; 1,700 videos lack a size; 1,306 have only frames or only seconds.
TEST(Preprocess, AssumptionsOnTheBundledTable) {
  const auto records = load_records(DFLOP_SOURCE_DIR "/traces/datasets/vision_mix.csv");
  const auto assumed = [&](const char* rule) {
    return preprocess(records, with_rule(rule), "t.csv").assumptions;
  };
  const Assumptions llava = assumed("llava-ov");
  EXPECT_EQ(llava.image_sizes, 0);
  EXPECT_EQ(llava.video_sizes, 0);
  EXPECT_EQ(llava.video_fps, 1306);
  const Assumptions internvl = assumed("internvl2.5");
  EXPECT_EQ(internvl.image_sizes, 1250);
  EXPECT_EQ(internvl.video_sizes + internvl.video_fps, 0);
  const Assumptions qwen = assumed("qwen2.5-vl");
  EXPECT_EQ(qwen.image_sizes, 1970);
  EXPECT_EQ(qwen.video_sizes, 1700);
  EXPECT_EQ(qwen.video_fps, 1306);
}

}  // namespace preprocess_test
}  // namespace dflop
