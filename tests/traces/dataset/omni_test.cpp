// Qwen2.5-Omni takes pictures with its first encoder and sounds, in parts of 2 s, with its second.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/core/input_error.hpp"
#include "tests/traces/dataset/shard_folder.hpp"
#include "traces/dataset/sample_content.hpp"
#include "traces/dataset/shard_data.hpp"
#include "traces/families/hugging_face.hpp"
#include "traces/media/model_media.hpp"
#include "traces/preprocess/preprocess.hpp"
#include "traces/text/staged_file.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace omni_test {

using nlohmann::json;

const std::string kReleased = DFLOP_SOURCE_DIR "/tests/golden/released/qwen2.5-omni-7b";

ModelSpec released(const std::function<void(json&)>& change = {}) {
  json config = json::parse(read_text_file(kReleased + "/config.json"));
  if (change) change(config["thinker_config"]);
  return parse_hugging_face(config.dump(), "omni/config.json");
}

Sample sound_of(const ModelSpec& model, double seconds, bool by_rule) {
  Record record;
  record.id = "one";
  record.modality = Modality::audio;
  record.audio_s = seconds;
  PreprocessOptions options;
  options.rule = model.preprocess;
  if (!by_rule) {
    options.media = std::make_shared<ModelMedia>(model, read_model_processor(model, kReleased),
                                                 read_second_processor(model, kReleased));
  }
  return preprocess({&record, 1}, options, "records.csv").samples.front();
}

TEST(Omni, ReadsBothEncodersOfTheThinker) {
  const ModelSpec model = released();
  ASSERT_TRUE(model.second);
  EXPECT_EQ(model.encoder.hidden, 1280);
  EXPECT_EQ(model.second->encoder.ffn, 5120);
  EXPECT_EQ(model.second->connector, (ConnectorSpec{{1280, 3584}, 2}));
  EXPECT_EQ(model.architecture->sound, (SoundGeometry{200, 50}));  // frames; 25 positions/s, chunks of 2 s
  EXPECT_EQ(model.architecture->picture.positions_per_s, 25);
  EXPECT_EQ(read_second_processor(model, kReleased)->chunk, 300 * kSoundRate);
}

TEST(Omni, RejectsWhatItCannotCompute) {
  const auto refusal = [](const std::function<void(json&)>& change) {
    return testing::input_error([&] { released(change); });
  };
  EXPECT_NE(refusal([](json& of) {
              of["audio_config"]["n_window"] = 25;
            }).find("audio_config.n_window': expected an even"),
            std::string::npos);
  EXPECT_NE(
      refusal([](json& of) { of["audio_config"]["output_dim"] = 3000; }).find("audio_config.output_dim'"),
      std::string::npos);
  EXPECT_NE(refusal([](json& of) {
              of["audio_config"]["max_source_positions"] = 99;
            }).find("audio_config.n_window': expected at most 'max_source_positions', 99"),
            std::string::npos);
  EXPECT_NE(refusal([](json& of) {
              of.erase("audio_config");
            }).find("'thinker_config.audio_config': expected this key"),
            std::string::npos);
}

/// 5.237 s are 83,792 samples, so 524 frames: parts of 200, 200 and 124, which give 100, 100 and 62 rows, and
/// half as many tokens. 301 s are one sound of 300 s, 150 parts, and one of 1 s, 50 rows.
TEST(Omni, CutsSoundsIntoParts) {
  const ModelSpec model = released();
  for (const bool by_rule : {false, true}) {
    const Sample one = sound_of(model, 5.237, by_rule);
    const EncoderSequences whole{2, 100, 10'000, true};
    const EncoderSequences rest{1, 62, 62 * 62, true};
    EXPECT_EQ(one.encoder_sequences, (std::vector<EncoderSequences>{whole, rest}));
    EXPECT_EQ(one.encoder_output_tokens, 131);
    const Sample two = sound_of(model, 301, by_rule);
    EXPECT_EQ(two.encoder(), (Workload{0, 0, 0, 0, {151, 15'050, 150 * 10'000 + 2'500}}));
    EXPECT_EQ(two.encoder_output_tokens, 150 * 50 + 25);
  }
}

TEST(Omni, ShapesOfSoundsEqualTheirContents) {
  const ModelSpec model = released();
  const MelOptions options = *read_second_processor(model, kReleased);
  Random random(5);
  for (int draw = 0; draw < 50; ++draw) {
    const std::int64_t samples = 1000 + static_cast<std::int64_t>(random.below(options.chunk - 1000));
    const MelSpectrum mel = mel_shape(samples, options);
    EXPECT_EQ(mel.frames, mel.valid_frames);
    const MediumContent sound = qwen_sound(model, mel.frames, mel.valid_frames, {});
    SampleContent content;
    content.sequences = sound.sequences;
    content.tokens.rows = sound.tokens;
    const Sample expected = shape_of(model, "one", content);
    const Sample found = sound_of(model, static_cast<double>(samples) / kSoundRate, false);
    EXPECT_EQ(found.encoder(), expected.encoder()) << samples;
    EXPECT_EQ(found.encoder_output_tokens, sound.tokens) << samples;
    EXPECT_EQ(expected.modality, Modality::audio);
  }
}

/// The first frames of a sound are the same whether the spectrum has the padding's frames or not.
TEST(Omni, FramesOfPaddingCanBeLeftOut) {
  std::vector<float> samples(8'000);
  Random random(3);
  for (float& sample : samples) sample = static_cast<float>(random.uniform() - 0.5);
  const MelSpectrum with = log_mel(samples, {.bins = 8, .chunk = 32'000});
  const MelSpectrum without = log_mel(samples, {.bins = 8, .chunk = 32'000, .keeps_padding = false});
  ASSERT_EQ(with.frames, 200);
  ASSERT_EQ(without.frames, 50);
  for (std::size_t bin = 0; bin < 8; ++bin) {
    for (std::size_t frame = 0; frame < 50; ++frame)
      EXPECT_EQ(without.values[bin * 50 + frame], with.values[bin * 200 + frame]);
  }
}

/// A video with tokens at 0, 4, 8, 40 and 40, and a sound of 28 tokens. With 8 positions a chunk, the tokens
/// at 0 and 4 come first, then the sound's first 8 tokens, then the one at 8, and so on. The token at 40 is
/// far beyond its chunk, which ends at 16, but ends only that one; so the other at 40 ends the next one.
TEST(Omni, TokensOfAVideoAndItsSoundAlternate) {
  ModelSpec model = released();
  Architecture& of = *model.architecture;
  of.sound = {200, 8};
  MediumContent video;
  video.sequences.resize(1);
  for (const std::int32_t at : {0, 4, 8, 40, 40}) {
    video.sequences[0].places.push_back(static_cast<std::int32_t>(video.tokens++));
    video.positions.push_back({at, 1, 2});
  }
  MediumContent sound;
  sound.sequences.resize(1);
  for (std::int32_t at = 0; at < 28; ++at) {
    sound.sequences[0].places.push_back(at);
    sound.positions.push_back({at, at, at});
  }
  sound.tokens = 28;
  const MediumContent both = qwen_video_with_sound(of, video, sound);
  std::string order;
  for (const bool heard : both.heard) order += heard ? 's' : 'v';
  const std::string chunk(8, 's');
  EXPECT_EQ(order, "vv" + chunk + "v" + chunk + "v" + chunk + "vssss");
  EXPECT_EQ(both.sequences[0].places, (std::vector<std::int32_t>{0, 1, 10, 19, 28}));
  EXPECT_EQ(both.sequences[1].places[8], 11);
  EXPECT_EQ(both.positions[28], (std::array<std::int32_t, 3>{40, 1, 2}));
  EXPECT_EQ(both.span, 28);  // after the last token, which is the sound's at 27
}

/// 25 positions a second: in single precision, 0.08 s are 2 positions; in double precision, the same number
/// is a little less.
TEST(Omni, TimesOfVideosAreRoundedInSinglePrecision) {
  const ModelSpec model = released();
  const MediumContent video = qwen_picture(*model.architecture, {2, 2, 2}, {}, 0.08F);
  EXPECT_EQ(video.positions[1][0], 2);
  EXPECT_EQ(video.span, 3);
}

/// The marks before a video with its sound share a position, and so do those after it.
TEST(Omni, MarksAroundAVideoWithSoundShareAPosition) {
  const ModelSpec model = released();
  const Architecture& of = *model.architecture;
  MediumContent medium;
  medium.tokens = 2;
  medium.heard = {false, true};
  medium.positions = {{0, 0, 0}, {0, 0, 0}};
  medium.span = 1;
  const auto video = static_cast<std::int32_t>(of.video_token);
  const auto sound = static_cast<std::int32_t>(of.audio_token);
  const std::vector<std::int32_t> ids = {5, 6, 7, video, sound, 8, 9, 10};
  const std::vector<std::int32_t> labels(ids.size(), -1);
  const SampleContent content = make_content(model, "one", ids, labels, {&medium, 1});
  std::vector<std::int32_t> times;
  for (std::size_t i = 0; i < content.tokens.positions.size(); i += 3)
    times.push_back(content.tokens.positions[i]);
  EXPECT_EQ(times, (std::vector<std::int32_t>{0, 1, 1, 2, 2, 3, 3, 4}));
}

/// A folder of the small golden model, with the tokenizer of tests/golden/io.
struct OmniData : ::testing::Test {
  testing::ShardFolder folder{"qwen2.5-omni-thinker"};
  ModelSpec model = parse_hugging_face(read_text_file(folder.path() + "/config.json"), folder.path());

  OmniData() {
    for (const char* name : {"photo.jpg", "sound.wav"})
      write_file_atomically(folder.path() + "/" + name,
                            read_text_file(std::string(DFLOP_SOURCE_DIR "/tests/golden/io/") + name));
  }

  ShardData open(const std::string& line) const {
    const std::string list = folder.path() + "/list.jsonl";
    write_file_atomically(list, line + "\n");
    return ShardData(model, folder.path(), list, {});
  }
};

TEST_F(OmniData, PicturesAndSoundsGoToTheirEncoders) {
  const ShardData data =
      open(R"({"images": ["photo.jpg"], "audios": ["sound.wav"], "messages": [{"role": "user", "content": )"
           R"("<audio>or<image>?"}, {"role": "assistant", "content": "x"}]})");
  ASSERT_EQ(data.samples().size(), 1U);
  const Sample& sample = data.samples().front();
  EXPECT_EQ(sample.modality, Modality::image);
  EXPECT_GT(sample.encoder().tokens, 0);
  EXPECT_GT(sample.encoder().second.tokens, 0);
  const SampleContent content = data.read(sample.id, true);
  EXPECT_TRUE(content.sequences.front().second);
  EXPECT_FALSE(content.sequences.back().second);
  for (const EncoderSequence& sequence : content.sequences) {
    const std::int64_t of_row = sequence.second ? 2 * 16 : 216;  // frames of 16 bins, or a patch
    EXPECT_LE(std::abs(sequence.values.size() - sequence.rows * of_row), sequence.second ? 16 : 0);
  }
}

/// The family's token of videos is not the other Qwens' <|video_pad|>.
TEST_F(OmniData, VideosGoToTheFirstEncoder) {
  std::filesystem::create_directories(folder.path() + "/v");
  for (const char* frame : {"/v/0.jpg", "/v/1.jpg", "/v/2.jpg", "/v/3.jpg"})
    write_file_atomically(folder.path() + frame, read_text_file(folder.path() + "/photo.jpg"));
  const ShardData data = open(R"({"videos": ["v"], "messages": [{"role": "user", "content": "<video>?"}, )"
                              R"({"role": "assistant", "content": "x"}]})");
  const Sample& sample = data.samples().front();
  EXPECT_EQ(sample.modality, Modality::video);
  EXPECT_GT(sample.encoder().tokens, 0);
  EXPECT_EQ(sample.encoder().second.tokens, 0);
}

TEST_F(OmniData, AFileOfAnotherKindThanItsPlaceholderIsRejected) {
  const std::string refusal = testing::input_error([&] {
    open(R"({"audios": ["photo.jpg"], "messages": [{"role": "user", "content": "<audio>?"}, )"
         R"({"role": "assistant", "content": "x"}]})");
  });
  EXPECT_NE(
      refusal.find(
          "list.jsonl: line 1: medium 0: expected a sound, as the placeholder in the text says, found a picture"),
      std::string::npos)
      << refusal;
}

/// So do the tokens around sounds, also in the config of a whole model, which has a thinker.
TEST_F(OmniData, IdsOfTokensAroundSoundsAreCompared) {
  json thinker = json::parse(read_text_file(folder.path() + "/config.json"));
  thinker["audio_end_token_id"] = 17;
  const json whole = {{"model_type", "qwen2_5_omni"}, {"thinker_config", thinker}};
  for (const json& config : {thinker, whole}) {
    write_file_atomically(folder.path() + "/config.json", config.dump());
    const std::string refusal = testing::input_error([&] { open("{}"); });
    EXPECT_NE(
        refusal.find("expected token '<|audio_eos|>' with id 17, as config.json's 'audio_end_token_id'"),
        std::string::npos)
        << refusal;
  }
}

}  // namespace omni_test
}  // namespace dflop
