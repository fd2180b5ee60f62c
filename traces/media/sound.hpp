// This file reads sounds from WAV files and computes the log-mel spectrum that Whisper's encoder takes
// (Qwen2-Audio's, too), like transformers' WhisperFeatureExtractor with numpy.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dflop {

/// The models require this sample rate.
inline constexpr std::int32_t kSoundRate = 16'000;

/// A SoundShape holds the headers of a WAV file.
struct SoundShape {
  std::int32_t rate = 0;  ///< in Hz
  std::int32_t channels = 0;
  std::int64_t samples = 0;  ///< per channel

  double seconds() const { return static_cast<double>(samples) / rate; }
  bool operator==(const SoundShape&) const = default;
};

/// Returns the shape of a WAV file from its headers. `bytes` must be the whole file, because a file that ends
/// before its last sample is an error. A size of ffffffff, which programs leave if they write into a pipe,
/// means that the samples extend to the end of the file.
/// @throws Error (input) for other formats (such as RF64), samples that are neither PCM of 8, 16, 24 or 32
/// bits nor floats of 32 or 64 nor A-law or mu-law, no or over 64 channels, rates outside 1,000 to 1,000,000
/// Hz, and sizes that do not fit together.
SoundShape sound_shape(std::string_view bytes, const std::string& file);

/// Returns the number of samples to which a sound is resampled, rounded up, as librosa does.
std::int64_t resampled_length(std::int64_t samples, std::int32_t from, std::int32_t to = kSoundRate);

/// Returns the samples of a WAV file, averaged over its channels, scaled so that full scale is 1, and
/// resampled to `rate`.
/// @throws Error (input) for floats that are not finite; what sound_shape() throws
std::vector<float> decode_sound(std::string_view bytes, const std::string& file,
                                std::int32_t rate = kSoundRate);

inline constexpr std::int64_t kMelWindow = 400;               ///< samples in a frame
inline constexpr std::int64_t kMelHop = 160;                  ///< samples between frame starts
inline constexpr std::int64_t kSoundChunk = 30 * kSoundRate;  ///< samples that most encoders take at once

/// MelOptions select a model's spectrum.
struct MelOptions {
  std::int32_t bins = 128;   ///< 128 for Qwen2-Audio and Whisper large-v3, 80 for older models
  bool pad_to_chunk = true;  ///< pad the sound with silence to `chunk` samples
  std::int64_t chunk = kSoundChunk;
  bool keeps_padding = true;  ///< the spectrum includes the frames of the padding
};

/// Reads the settings of a WhisperFeatureExtractor from a preprocessor_config.json. A missing key stands for
/// the supported value, which for the chunk is `usual.chunk`; a missing number of bins stands for
/// `usual.bins`.
/// @throws Error (input) with `file` and key for a different extractor, and for an unsupported rate, window,
/// hop or padding
MelOptions parse_sound_processor(std::string_view json, const std::string& file, const MelOptions& usual);

/// A MelSpectrum has a frame for every kMelHop samples.
struct MelSpectrum {
  std::int32_t bins = 0;
  std::int64_t frames = 0;
  std::int64_t valid_frames = 0;  ///< frames that begin within the sound; the others are padding
  std::vector<float> values;      ///< [bins, frames]
};

/// Returns a spectrum without values, with the numbers of frames and valid frames that log_mel() makes from
/// `samples` samples.
/// @throws what log_mel() throws
MelSpectrum mel_shape(std::int64_t samples, const MelOptions& options);

/// Returns the triangular filters between 0 and 8,000 Hz on Slaney's mel scale, each of area 1: [bins, 201].
std::vector<double> mel_filters(std::int32_t bins);

/// Returns the log-mel spectrum: (max(log10 p, m - 8) + 4) / 4, where p is the mel power, at least 1e-10, and
/// m is the maximum of log10 p. Each frame has 400 samples under a Hann window. The sound is mirrored at both
/// ends.
/// @throws Error (input) for fewer samples than a frame's hop, or none; for bins outside 1 to 512; and, with
/// padding, for more than `chunk` samples: the caller must cut longer sounds.
MelSpectrum log_mel(std::span<const float> samples, const MelOptions& options = {});

}  // namespace dflop
