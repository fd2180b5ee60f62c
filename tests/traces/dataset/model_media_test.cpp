// Shapes of records by a model's own processors equal the shapes of the contents in live runs.
#include "traces/media/model_media.hpp"

#include <gtest/gtest.h>
#include <zlib.h>

#include "core/support/random.hpp"
#include "tests/core/input_error.hpp"
#include "tests/traces/file_fixtures.hpp"
#include "traces/dataset/media.hpp"
#include "traces/dataset/media_reader.hpp"
#include "traces/dataset/sample_content.hpp"
#include "traces/families/hugging_face.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace model_media_test {

/// A Folder is a model with the settings of its processor, or with default settings.
struct Folder {
  ModelSpec model;
  ModelProcessor processor;

  explicit Folder(const std::string& name) {
    const std::string folder = DFLOP_SOURCE_DIR "/tests/golden/" + name;
    model = parse_hugging_face(read_text_file(folder + "/config.json"), folder);
    processor = read_model_processor(model, folder);
  }

  Sample sample_of(const Record& record) const {
    PreprocessOptions options;
    options.rule = model.preprocess;
    options.media = std::make_shared<ModelMedia>(model, processor);
    return preprocess({&record, 1}, options, "records.csv").samples.front();
  }
};

Record record_of(const std::vector<ImageSize>& images) {
  Record record;
  record.id = "one";
  record.row = 7;
  record.modality = images.size() > 1 ? Modality::multi_image : Modality::image;
  record.images = images;
  record.image_count = static_cast<std::int32_t>(images.size());
  return record;
}

/// Returns the shape of a sample with only these media.
Sample shape_of_media(const ModelSpec& model, const std::vector<MediumContent>& media) {
  SampleContent content;
  for (const MediumContent& medium : media) {
    content.sequences.insert(content.sequences.end(), medium.sequences.begin(), medium.sequences.end());
    content.tokens.rows += medium.tokens;
  }
  return shape_of(model, "one", content);
}

std::vector<ImageSize> random_images(Random& random) {
  std::vector<ImageSize> images(random.below(3) == 0 ? 2 : 1);
  for (ImageSize& image : images) {
    image.width = static_cast<std::int32_t>(20 + random.below(1200));
    image.height = static_cast<std::int32_t>(20 + random.below(1200));
  }
  return images;
}

/// Compares shapes of random records with the shapes of `make(model, processor, size, is_alone)`.
template <typename Processor, typename Make>
void expect_contents(const std::string& name, const Make& make) {
  const Folder folder(name);
  const auto& processor = std::get<Processor>(folder.processor);
  Random random(11);
  for (int draw = 0; draw < 25; ++draw) {
    const std::vector<ImageSize> images = random_images(random);
    std::vector<MediumContent> media;
    for (const ImageSize& image : images) {
      media.push_back(make(*folder.model.architecture, processor, image, images.size() == 1));
    }
    const Sample expected = shape_of_media(folder.model, media);
    const Sample found = folder.sample_of(record_of(images));
    EXPECT_EQ(found.encoder(), expected.encoder())
        << name << " " << images[0].width << "x" << images[0].height;
    EXPECT_EQ(found.encoder_output_tokens, expected.encoder_output_tokens) << name;
  }
}

TEST(ModelMedia, PicturesOfLlavaOneVisionMatchTheirContents) {
  for (const char* name : {"models/llava-onevision-qwen2", "released/llava-onevision-qwen2-7b-ov"}) {
    expect_contents<LlavaProcessor>(
        name, [](const Architecture& of, const LlavaProcessor& processor, ImageSize size, bool is_alone) {
          return llava_picture(of, is_alone ? llava_tile_count(size, processor) : 1, {}, size, is_alone);
        });
  }
}

TEST(ModelMedia, PicturesOfLlavaMatchTheirContents) {
  expect_contents<ClipProcessor>("models/llava-1.5", [](const Architecture& of, const ClipProcessor&,
                                                        ImageSize, bool) { return clip_picture(of, {}); });
  // LLaVA-NeXT also cuts each of several pictures into tiles.
  expect_contents<LlavaProcessor>(
      "models/llava-next", [](const Architecture& of, const LlavaProcessor& processor, ImageSize size, bool) {
        return llava_picture(of, llava_tile_count(size, processor), {}, size, true);
      });
}

/// The small LLaVA 1.5 has tiles of 4 x 4 patches and a class row, which only the strategy "full" keeps.
TEST(ModelMedia, PicturesOfLlava15AreOneTileEach) {
  const std::string folder = DFLOP_SOURCE_DIR "/tests/golden/models/llava-1.5";
  const std::string json = read_text_file(folder + "/config.json");
  const std::string key = "\"vision_feature_select_strategy\": \"";
  for (const bool keeps : {false, true}) {
    const std::string config = keeps ? replaced(json, key + "default", key + "full") : json;
    const ModelSpec model = parse_hugging_face(config, folder);
    PreprocessOptions options;
    options.rule = model.preprocess;
    options.media = std::make_shared<ModelMedia>(model, read_model_processor(model, folder));
    const Record record = record_of({{30, 500}, {700, 20}, {24, 24}});
    const Sample sample = preprocess({&record, 1}, options, "r").samples.front();
    EXPECT_EQ(sample.encoder(), (Workload{3, 3 * 17, 3 * 17 * 17}));
    EXPECT_EQ(sample.encoder_output_tokens, 3 * (keeps ? 17 : 16));
  }
}

TEST(ModelMedia, PicturesOfQwenMatchTheirContents) {
  for (const char* name :
       {"models/qwen2-vl", "models/qwen2.5-vl", "released/qwen2-vl-7b", "released/qwen2.5-vl-7b"}) {
    expect_contents<QwenProcessor>(
        name, [](const Architecture& of, const QwenProcessor& processor, ImageSize size, bool) {
          const QwenGrid grid = qwen_grid(size, processor);
          return qwen_picture(of, {grid.frames, grid.rows, grid.columns}, {}, std::nullopt);
        });
  }
}

TEST(ModelMedia, PicturesOfInternvlMatchTheirContents) {
  for (const char* name : {"models/internvl-300m-style", "released/internvl2.5-8b"}) {
    expect_contents<InternvlProcessor>(
        name, [](const Architecture& of, const InternvlProcessor& processor, ImageSize size, bool) {
          return internvl_picture(of, internvl_tile_count(size, processor), {});
        });
  }
}

/// A WAV file with another sampling rate has the shape of its resampled sound: three times the rate gives a
/// third of the samples and, but for rounding, of the tokens.
TEST(ModelMedia, SoundsOfAnotherRateAreResampled) {
  const Folder folder("released/qwen2-audio-7b");
  const MediaReader reader(folder.model, DFLOP_SOURCE_DIR "/tests/golden/released/qwen2-audio-7b");
  std::string wav = read_text_file(DFLOP_SOURCE_DIR "/tests/golden/io/sound.wav");
  const std::int64_t before = reader.shape({wav, "a.wav", true}).tokens;
  wav.replace(24, 4, std::string("\x80\xBB\0\0", 4));  // 48,000, in the format's field for the rate
  const MediumContent content = reader.read({wav, "a.wav", true});
  EXPECT_EQ(content.tokens, reader.shape({wav, "a.wav", true}).tokens);
  EXPECT_NEAR(static_cast<double>(content.tokens), static_cast<double>(before) / 3, 1);
  EXPECT_GT(before, 6);
}

/// A sound's headers do not show samples that are not finite; decoding it does. Bytes of ff are NaN as 32-bit
/// floats.
TEST(ModelMedia, CheckingASoundFindsWhatItsHeadersDoNotShow) {
  const Folder folder("released/qwen2-audio-7b");
  const MediaReader reader(folder.model, DFLOP_SOURCE_DIR "/tests/golden/released/qwen2-audio-7b");
  std::string wav = read_text_file(DFLOP_SOURCE_DIR "/tests/golden/io/sound.wav");
  EXPECT_NO_THROW(reader.check({wav, "a.wav", true}));
  wav.replace(20, 1, "\x03");                                 // the format's code: floats
  wav.replace(32, 4, std::string("\x04\0\x20\0", 4));         // bytes and bits of a sample
  wav.replace(44, wav.size() - 44, wav.size() - 44, '\xFF');  // behind the headers
  EXPECT_GT(reader.shape({wav, "a.wav", true}).tokens, 0);
  const std::string refusal = testing::input_error([&] { reader.check({wav, "a.wav", true}); });
  EXPECT_NE(refusal.find("expected finite samples"), std::string::npos) << refusal;
}

/// Qwen2-Audio's encoder takes 30 s at once, 480,000 samples of 2 bytes. It makes a token of three frames of
/// 160 samples; the last frame may have only one sample.
TEST(ModelMedia, SoundsOfDifferentLengthsHaveDifferentShapes) {
  const Folder folder("released/qwen2-audio-7b");
  const MediaReader reader(folder.model, DFLOP_SOURCE_DIR "/tests/golden/released/qwen2-audio-7b");
  const auto wav = [](std::uint32_t samples) {
    const std::uint32_t size = samples * 2;
    const std::uint32_t chunks[] = {size + 36, 16, 1 | 1U << 16, 16'000, 32'000, 2 | 16U << 16, size};
    const auto text = [&](int from, int count) {
      return std::string(reinterpret_cast<const char*>(chunks + from), static_cast<std::size_t>(count) * 4);
    };
    return "RIFF" + text(0, 1) + "WAVEfmt " + text(1, 5) + "data" + text(6, 1) + std::string(size, '\0');
  };
  const auto tokens = [&](std::uint32_t samples) {
    return reader.shape({wav(samples), "a.wav", true}).tokens;
  };
  EXPECT_EQ(tokens(321), 1);
  EXPECT_EQ(tokens(480'000), 750);  // 3,000 frames, halved twice
  for (const std::uint32_t samples : {0U, 320U, 480'001U}) {
    const std::string bytes = wav(samples);
    for (const bool values : {false, true}) {
      try {
        static_cast<void>(values ? reader.read({bytes, "a.wav", true})
                                 : reader.shape({bytes, "a.wav", true}));
        ADD_FAILURE() << samples << " were taken";
      } catch (const UntakenLength& problem) {
        // 321 of 16,000 samples a second are 0.0201 s; 480,001 are a little more than 30 s.
        const std::string length = samples == 0 ? "0" : samples == 320 ? "0.02" : "30.0001";
        EXPECT_EQ(problem.why,
                  "a.wav: the model takes sounds of 0.0201 s to 30 s, this one lasts " + length + " s");
      }
    }
  }
}

/// Picture sizes that no processor accepts are rejected from headers only, with the picture's name. With two
/// pictures, LLaVA-OneVision pads each to a square.
TEST(ModelMedia, PicturesThatNoProcessorTakesAreRejectedByTheirHeaders) {
  const std::string folder = DFLOP_SOURCE_DIR "/tests/golden/released/llava-onevision-qwen2-7b-ov";
  const MediaReader reader(parse_hugging_face(read_text_file(folder + "/config.json"), folder), folder);
  std::string png = read_text_file(DFLOP_SOURCE_DIR "/tests/golden/io/wide.png");
  const std::string size("\0\0\x75\x30\0\0\0\x01", 8);  // 30,000 x 1, in the header's fields
  png.replace(16, 8, size);
  uLong crc = ::crc32(0, reinterpret_cast<const Bytef*>(png.data() + 12), 17);
  for (std::size_t i = 4; i-- > 0; crc >>= 8) png[29 + i] = static_cast<char>(crc & 0xFF);
  const std::string refusal = testing::input_error([&] {
    static_cast<void>(reader.shape({png, "thin.png", false}));
  });
  EXPECT_NE(refusal.find("thin.png: expected a picture that has at most"), std::string::npos) << refusal;
}

TEST(ModelMedia, SoundsOfQwen2AudioMatchTheirContents) {
  const Folder folder("released/qwen2-audio-7b");
  Random random(12);
  for (int draw = 0; draw < 25; ++draw) {
    const std::int64_t samples = 1000 + static_cast<std::int64_t>(random.below(kSoundChunk - 1000));
    const MelSpectrum mel = mel_shape(samples, std::get<MelOptions>(folder.processor));
    const Sample expected =
        shape_of_media(folder.model, {qwen_sound(folder.model, mel.frames, mel.valid_frames, {})});
    Record record;
    record.modality = Modality::audio;
    record.audio_s = static_cast<double>(samples) / kSoundRate;
    const Sample found = folder.sample_of(record);
    EXPECT_EQ(found.encoder(), expected.encoder()) << samples;
    EXPECT_EQ(found.encoder_output_tokens, expected.encoder_output_tokens) << samples;
  }
  // 61 s are two whole pieces of 1,500 rows and 1 s: 100 frames, 50 rows, 25 tokens.
  Record record;
  record.modality = Modality::audio;
  record.audio_s = 61;
  const Sample sample = folder.sample_of(record);
  EXPECT_EQ(sample.encoder(), (Workload{3, 3050, 2 * 1500 * 1500 + 50 * 50}));
  EXPECT_EQ(sample.encoder_output_tokens, 750 + 750 + 25);
}

TEST(ModelMedia, ReleasedModelsHaveTheShapesOfTheirFamilysRule) {
  // If a folder has the same limits as the rule, shapes are the same, too: for LLaVA 1.5 and OneVision, for
  // pictures of Qwen2.5-VL, and for InternVL if a record has only one picture.
  for (const char* name : {"released/llava-onevision-qwen2-7b-ov", "released/qwen2.5-vl-7b",
                           "released/internvl2.5-8b", "released/llava-1.5-7b"}) {
    const Folder folder(name);
    Random random(13);
    for (int draw = 0; draw < 50; ++draw) {
      const Record record = record_of({random_images(random).front()});
      PreprocessOptions options;
      options.rule = folder.model.preprocess;
      const Sample by_rule = preprocess({&record, 1}, options, "records.csv").samples.front();
      const Sample own = folder.sample_of(record);
      EXPECT_EQ(own.encoder(), by_rule.encoder())
          << name << " " << record.images[0].width << "x" << record.images[0].height;
      EXPECT_EQ(own.encoder_output_tokens, by_rule.encoder_output_tokens) << name;
    }
  }
}

TEST(ModelMedia, VideosHaveTheFramesOfTheRuleInTheFoldersGeometry) {
  Record record;
  record.id = "v";
  record.modality = Modality::video;
  record.video_s = 10;
  record.video_fps = 30;
  record.video_frames = 300;
  record.video_size = ImageSize{640, 360};
  // The small LLaVA-OneVision has tiles of 5x5 patches: at one frame a second, 10 frames of 25 rows, pooled
  // to 3x3, and one newline.
  const Sample llava = Folder("models/llava-onevision-qwen2").sample_of(record);
  EXPECT_EQ(llava.encoder(), (Workload{10, 250, 10 * 25 * 25}));
  EXPECT_EQ(llava.encoder_output_tokens, 10 * 9 + 1);
  // The released Qwen2.5-VL has the same patches as the rule, so that both give the same shapes.
  const Folder qwen("released/qwen2.5-vl-7b");
  PreprocessOptions options;
  options.rule = qwen.model.preprocess;
  const Sample by_rule = preprocess({&record, 1}, options, "records.csv").samples.front();
  EXPECT_EQ(qwen.sample_of(record).encoder(), by_rule.encoder());
  EXPECT_EQ(qwen.sample_of(record).encoder_output_tokens, by_rule.encoder_output_tokens);
}

TEST(ModelMedia, UnsupportedMediaAreRejectedWithTheirRow) {
  Record sound;
  sound.row = 7;
  sound.modality = Modality::audio;
  sound.audio_s = 0.01;  // one frame
  expect_refused([&] { Folder("released/qwen2-audio-7b").sample_of(sound); },
                 "records.csv:row 7, column 'audio_s'", {"3 to 3000 frames", "found 1"});
  expect_refused(
      [&] {
        Folder("released/qwen2.5-vl-7b").sample_of(record_of({{10'000, 10}}));
      },
      "records.csv:row 7, column 'images'", {"200 times", "10000x10"});
  Record video;
  video.row = 7;
  video.modality = Modality::video;
  video.video_s = 1;
  for (const char* name : {"models/llava-1.5", "models/llava-next"}) {
    expect_refused([&] { Folder(name).sample_of(video); }, "records.csv:row 7, column 'modality'",
                   {"text,image,multi_image", "found video"});
    sound.audio_s = 1;
    expect_refused([&] { Folder(name).sample_of(sound); }, "records.csv:row 7, column 'modality'",
                   {"text,image,multi_image", "found audio"});
  }
}

}  // namespace model_media_test
}  // namespace dflop
