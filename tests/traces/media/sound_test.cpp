#include "traces/media/sound.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/support/random.hpp"
#include "tests/core/input_error.hpp"
#include "tests/traces/media/golden_io.hpp"

namespace dflop::testing {
namespace sound_test {

using namespace std::string_literals;

std::string little(std::uint32_t value, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

std::string chunk(const std::string& name, const std::string& content) {
  const std::string padding(content.size() % 2, '\0');
  return name + little(static_cast<std::uint32_t>(content.size()), 4) + content + padding;
}

struct Format {
  unsigned code = 1;
  unsigned channels = 1;
  unsigned rate = 16'000;
  unsigned bits = 16;
};

std::string format_of(const Format& format) {
  const unsigned frame = format.channels * format.bits / 8;
  return little(format.code, 2) + little(format.channels, 2) + little(format.rate, 4) +
         little(format.rate * frame, 4) + little(frame, 2) + little(format.bits, 2);
}

std::string riff(const std::string& chunks) {
  return "RIFF" + little(static_cast<std::uint32_t>(4 + chunks.size()), 4) + "WAVE" + chunks;
}

std::string wav(const Format& format, const std::string& data) {
  return riff(chunk("fmt ", format_of(format)) + chunk("data", data));
}

std::string error_of(const std::string& bytes) {
  return input_error([&] { decode_sound(bytes, "a.wav"); });
}

TEST(Sounds, HaveFullScaleOneInEachFormOfSamples) {
  // The smallest number is -1, and half of the range is 0.5. 8-bit samples are unsigned, with silence at 128.
  using Samples = std::vector<float>;
  EXPECT_EQ(decode_sound(wav({1, 1, 16'000, 8}, "\x00\x80\xC0"s), ""), (Samples{-1, 0, 0.5}));
  EXPECT_EQ(decode_sound(wav({1, 1, 16'000, 16}, "\x00\x80\x00\x00\x00\x40"s), ""), (Samples{-1, 0, 0.5}));
  EXPECT_EQ(decode_sound(wav({1, 1, 16'000, 24}, "\x00\x00\x80\x00\x00\x40"s), ""), (Samples{-1, 0.5}));
  EXPECT_EQ(decode_sound(wav({1, 1, 16'000, 32}, "\x00\x00\x00\x80\x00\x00\x00\x40"s), ""),
            (Samples{-1, 0.5}));
  // 0.5 and -2 as doubles; their lower four bytes are zero.
  EXPECT_EQ(decode_sound(wav({3, 1, 16'000, 64},
                             little(0, 4) + little(0x3FE00000, 4) + little(0, 4) + little(0xC0000000, 4)),
                         ""),
            (Samples{0.5, -2}));
  // G.711: the codes of the smallest and the largest size, in steps of 1/32768. A-law inverts every second
  // bit (55), and its sizes are the middles of intervals: 8 and 31.5 * 1024. Mu-law inverts all bits.
  EXPECT_EQ(decode_sound(wav({6, 1, 16'000, 8}, "\xD5\x55\xAA\x2A"s), ""),
            (Samples{8.0 / 32768, -8.0 / 32768, 32256.0 / 32768, -32256.0 / 32768}));
  EXPECT_EQ(decode_sound(wav({7, 1, 16'000, 8}, "\xFF\x7F\x80\x00\xEF"s), ""),
            (Samples{0, 0, 32124.0 / 32768, -32124.0 / 32768, 132.0 / 32768}));
  const std::string floats =
      little(std::bit_cast<std::uint32_t>(-0.25f), 4) + little(std::bit_cast<std::uint32_t>(1.5f), 4);
  EXPECT_EQ(decode_sound(wav({3, 1, 16'000, 32}, floats), ""), (Samples{-0.25, 1.5}));
}

TEST(Sounds, AreTheMeanOfTheirChannels) {
  // Frames of two channels: (64, 192) - 128 is (-64, 64), and (192, 255) - 128 is (64, 127).
  EXPECT_EQ(decode_sound(wav({1, 2, 16'000, 8}, "\x40\xC0\xC0\xFF"s), ""),
            (std::vector<float>{0, (64.0f + 127.0f) / 256}));
}

TEST(Sounds, OtherMediaAreNamed) {
  for (const auto& [name, expected] :
       {std::pair{"photo.jpg", "found a picture"}, {"frames.mp4", "found a video"}}) {
    const std::string found = error_of(read_text_file(golden_io(name)));
    EXPECT_NE(found.find(expected), std::string::npos) << found;
  }
}

TEST(Sounds, MayBeExtensibleAndHaveOtherChunks) {
  const std::string guid_end = "\x00\x00\x00\x00\x10\x00\x80\x00\x00\xAA\x00\x38\x9B\x71"s;
  const auto extensible = [&](const std::string& guid) {
    return format_of({0xFFFE, 1, 16'000, 16}) + little(22, 2) + little(16, 2) + little(4, 4) + guid;
  };
  // A chunk of three bytes is padded to four.
  const std::string before = chunk("LIST", "abc");
  const std::string data = chunk("data", "\x00\x40"s);
  EXPECT_EQ(decode_sound(riff(before + chunk("fmt ", extensible(little(1, 2) + guid_end)) + data), ""),
            std::vector<float>{0.5});
  EXPECT_NE(error_of(riff(chunk("fmt ", extensible(little(1, 2) + guid_end.substr(1) + "x")) + data))
                .find("expected PCM or float samples"),
            std::string::npos);
  EXPECT_NE(
      error_of(riff(chunk("fmt ", extensible(little(2, 2) + guid_end)) + data)).find("found code 2 of 16"),
      std::string::npos);
}

TEST(Sounds, OfAPipeAreReadToTheEnd) {
  std::string bytes = wav({}, "\x00\x40\x00\x40"s);
  bytes.replace(bytes.size() - 8, 4, "\xFF\xFF\xFF\xFF");
  EXPECT_EQ(decode_sound(bytes, "").size(), 2u);
}

TEST(Sounds, AreRejectedWithPlaceAndReason) {
  const std::string data = "\x00\x40"s;
  EXPECT_EQ(error_of("RF64"),
            "a.wav: expected a WAV file, which begins with 'RIFF', a size and 'WAVE', found RF64");
  EXPECT_EQ(error_of(""),
            "a.wav: expected a WAV file, which begins with 'RIFF', a size and 'WAVE', found another "
            "kind or fewer bytes");
  // Both chunk headers have 8 bytes, so the format begins at 20, and the data, after its 16 bytes, at 44.
  EXPECT_EQ(
      error_of(wav({2, 1, 16'000, 8}, data)),
      "a.wav: offset 20: expected PCM (code 1) of 8, 16, 24 or 32 bits, floats (code 3) of 32 or 64, or A-law or mu-law "
      "(codes 6 and 7) of 8, found code 2 of 8 bits");
  EXPECT_EQ(error_of(wav({1, 0, 16'000, 16}, data)), "a.wav: offset 20: expected 1 to 64 channels, found 0");
  for (const unsigned rate : {0u, 999u, 1'000'001u}) {
    EXPECT_EQ(error_of(wav({1, 1, rate, 16}, data)),
              fmt::format("a.wav: offset 20: expected a rate of 1000 to 1000000 Hz, found {}", rate));
  }
  EXPECT_EQ(error_of(wav({}, "abc")),
            "a.wav: offset 44: expected a multiple of 2 bytes, the size of a frame, found 3");
  EXPECT_EQ(error_of(riff(chunk("data", data))),
            "a.wav: offset 20: expected a chunk 'fmt ' before 'data', found none");
  EXPECT_EQ(error_of(riff(chunk("fmt ", format_of({})))),
            "a.wav: offset 36: expected a chunk 'data', found the end of the file");
  EXPECT_EQ(error_of(riff(chunk("fmt ", "ab"))),
            "a.wav: offset 20: expected a chunk 'fmt ' of 16 bytes or more, found 2");
  std::string wrong_frame = format_of({});
  wrong_frame[12] = 4;
  EXPECT_EQ(error_of(riff(chunk("fmt ", wrong_frame))),
            "a.wav: offset 20: expected 2 bytes per frame, for 1 channels of 16 bits, found 4");
  const std::string nan = little(std::bit_cast<std::uint32_t>(std::numeric_limits<float>::infinity()), 4);
  EXPECT_EQ(error_of(wav({3, 1, 16'000, 32}, nan)), "a.wav: offset 44: expected finite samples, found inf");
}

/// Returns a tone of `hertz` for `samples` samples at a rate, as 32-bit floats.
std::string tone(double hertz, unsigned rate, int samples) {
  std::string data;
  for (int i = 0; i < samples; ++i) {
    const auto value = static_cast<float>(std::sin(2 * std::numbers::pi * hertz * i / rate));
    data += little(std::bit_cast<std::uint32_t>(value), 4);
  }
  return wav({3, 1, rate, 32}, data);
}

/// A resampled tone is the same tone at 16,000 Hz. Near both ends, the filter lacks samples.
TEST(Sounds, AreResampled) {
  for (const unsigned rate : {8'000u, 11'025u, 44'100u, 48'000u}) {
    const std::vector<float> found = decode_sound(tone(440, rate, 4801), "");
    ASSERT_EQ(found.size(), static_cast<std::size_t>(std::ceil(4801 * (16'000.0 / rate))));
    for (std::size_t i = 200; i + 200 < found.size(); ++i)
      ASSERT_NEAR(found[i], std::sin(2 * std::numbers::pi * 440 * static_cast<double>(i) / 16'000), 1e-4)
          << rate;
  }
  // A tone above half of the new rate disappears.
  const std::vector<float> none = decode_sound(tone(10'000, 48'000, 4800), "");
  for (std::size_t i = 200; i + 200 < none.size(); ++i) ASSERT_NEAR(none[i], 0, 1e-4);
  EXPECT_TRUE(decode_sound(wav({1, 1, 48'000, 16}, ""), "").empty());
  const std::string large = little(std::bit_cast<std::uint32_t>(std::numeric_limits<float>::max()), 4);
  std::string steps;
  for (int i = 0; i < 100; ++i) steps += large;
  EXPECT_NE(error_of(wav({3, 1, 48'000, 32}, steps)).find("expected samples that can be resampled"),
            std::string::npos);
}

/// librosa rounds up: 3 samples at 48 kHz are 1, 4 are 2.
TEST(Sounds, HaveTheResampledLengthOfLibrosa) {
  EXPECT_EQ(resampled_length(3, 48'000), 1);
  EXPECT_EQ(resampled_length(4, 48'000), 2);
  EXPECT_EQ(resampled_length(5, 8'000), 10);
  EXPECT_EQ(resampled_length(7, 16'000), 7);
  EXPECT_EQ(resampled_length(0, 44'100), 0);
}

TEST(Sounds, CutOffAnywhereAreRejected) {
  const std::string whole = wav({1, 2, 16'000, 24}, std::string(60, 'x'));
  EXPECT_EQ(decode_sound(whole, "").size(), 10u);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(error_of(whole.substr(0, size)).empty()) << size;
  }
}

TEST(Sounds, HaveTheShapeOfTheirHeaders) {
  Random random(1);
  for (int i = 0; i < 100; ++i) {
    const Format format{1, static_cast<unsigned>(1 + random.below(4)), 16'000,
                        static_cast<unsigned>(8 * (1 + random.below(4)))};
    const std::size_t frames = random.below(50);
    const std::string bytes = wav(format, std::string(frames * format.channels * format.bits / 8, 'x'));
    const SoundShape shape = sound_shape(bytes, "a.wav");
    EXPECT_EQ(shape, (SoundShape{16'000, static_cast<std::int32_t>(format.channels),
                                 static_cast<std::int64_t>(frames)}));
    EXPECT_EQ(decode_sound(bytes, "a.wav").size(), frames);
    EXPECT_EQ(shape.seconds(), static_cast<double>(frames) / 16'000);
  }
}

TEST(MelSpectra, EqualTheGoldenOne) {
  const std::vector<float> samples = decode_sound(read_text_file(golden_io("sound.wav")), "sound.wav");
  const MelSpectrum mel = log_mel(samples);
  ASSERT_EQ(mel.bins, 128);
  ASSERT_EQ(mel.frames, 3000);
  EXPECT_EQ(mel.valid_frames, 100);                                                  // 16,000 samples
  const std::vector<float> golden = golden_tensor<float>("mel.safetensors", "mel");  // the first 120 frames
  ASSERT_EQ(golden.size(), 128u * 120);
  for (std::size_t i = 0; i < golden.size(); ++i) {
    EXPECT_NEAR(mel.values[i / 120 * 3000 + i % 120], golden[i], 1e-6) << i;
  }
}

TEST(MelSpectra, HaveTheGoldenFilters) {
  const std::vector<double> golden = golden_tensor<double>("mel.safetensors", "filters");  // [201, 128]
  const std::vector<double> filters = mel_filters(128);
  ASSERT_EQ(filters.size(), golden.size());
  for (std::size_t i = 0; i < filters.size(); ++i) {
    EXPECT_NEAR(filters[i], golden[i % 201 * 128 + i / 201], 1e-15) << i;
  }
}

TEST(MelSpectra, HaveTheShapeOfTheNumberOfSamples) {
  Random random(2);
  for (int i = 0; i < 30; ++i) {
    const auto samples = static_cast<std::int64_t>(160 + random.below(5'000));
    const MelOptions options{static_cast<std::int32_t>(1 + random.below(128)), i % 10 == 0};
    const MelSpectrum shape = mel_shape(samples, options);
    const MelSpectrum mel = log_mel(std::vector<float>(static_cast<std::size_t>(samples), 0.1f), options);
    EXPECT_EQ(shape.frames, options.pad_to_chunk ? 3000 : samples / 160);
    EXPECT_EQ(shape.valid_frames, std::min(shape.frames, (samples + 159) / 160));
    EXPECT_EQ(std::tie(mel.bins, mel.frames, mel.valid_frames),
              std::tie(shape.bins, shape.frames, shape.valid_frames));
    EXPECT_EQ(mel.values.size(), static_cast<std::size_t>(shape.bins * shape.frames));
  }
}

/// Padding is silence: frames that no sample reaches have the lowest value.
TEST(MelSpectra, OfAPaddedSoundBeginAsWithoutPadding) {
  Random random(3);
  std::vector<float> samples(4'000);
  for (float& sample : samples) sample = static_cast<float>(random.uniform() - 0.5);
  const MelSpectrum padded = log_mel(samples, {80, true});
  const MelSpectrum bare = log_mel(samples, {80, false});
  // A frame reaches 200 samples to each side. From frame 24 on, at 3,840, it depends on whether the sound's
  // end is mirrored.
  for (std::int64_t bin = 0; bin < 80; ++bin) {
    for (std::int64_t frame = 0; frame < 24; ++frame) {
      EXPECT_EQ(padded.values[static_cast<std::size_t>(bin * 3000 + frame)],
                bare.values[static_cast<std::size_t>(bin * 25 + frame)]);
    }
    EXPECT_EQ(padded.values[static_cast<std::size_t>(bin * 3000 + 2999)],
              *std::min_element(padded.values.begin(), padded.values.end()));
  }
}

/// A sine in the middle of the frequency range is loudest in the band that contains it.
TEST(MelSpectra, AreLoudestWhereTheSoundIs) {
  std::vector<float> samples(8'000);
  // Line 50 of 201, which reach 8,000 Hz, is 2,000 Hz.
  for (std::size_t i = 0; i < samples.size(); ++i) {
    samples[i] = static_cast<float>(std::sin(2 * 3.14159265358979 * 2'000 / 16'000 * static_cast<double>(i)));
  }
  const MelSpectrum mel = log_mel(samples, {80, false});
  const std::vector<double> filters = mel_filters(80);
  const auto at_line_50 = [&](std::size_t bin) { return filters[bin * 201 + 50]; };
  std::size_t loudest = 0;
  std::size_t nearest = 0;
  for (std::size_t bin = 0; bin < 80; ++bin) {
    const auto value = [&](std::size_t b) { return mel.values[b * 50 + 25]; };
    if (value(bin) > value(loudest)) loudest = bin;
    if (at_line_50(bin) > at_line_50(nearest)) nearest = bin;
  }
  EXPECT_EQ(loudest, nearest);
}

TEST(MelSpectra, RejectSoundsThatAreTooShortOrTooLong) {
  const auto error = [](std::size_t samples, MelOptions options) {
    return input_error([&] { log_mel(std::vector<float>(samples), options); });
  };
  EXPECT_EQ(error(159, {}), "expected a sound of 160 to 480000 samples, found 159");
  EXPECT_EQ(error(480'001, {}), "expected a sound of 160 to 480000 samples, found 480001");
  EXPECT_EQ(error(480'001, {80, false}), "");
  EXPECT_EQ(error(480'000, {0, true}), "expected 1 to 512 mel bins, found 0");
}

}  // namespace sound_test
}  // namespace dflop::testing
