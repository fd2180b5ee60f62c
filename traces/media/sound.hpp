// Sounds are read from WAV files, and become the log-mel spectrum that Whisper's encoder takes
// (Qwen2-Audio's, too), as transformers' WhisperFeatureExtractor computes it with numpy.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dflop {

/// The models hear at this rate.
inline constexpr std::int32_t kSoundRate = 16'000;

/// A SoundShape is what the headers of a WAV file say.
struct SoundShape {
  std::int32_t rate = 0;  ///< samples a second and channel
  std::int32_t channels = 0;
  std::int64_t samples = 0;  ///< of one channel

  double seconds() const { return static_cast<double>(samples) / rate; }
  bool operator==(const SoundShape&) const = default;
};

/// Returns the shape of a WAV file from its headers. Of a file that ends before its samples do it is an
/// error, too, so `bytes` is the whole file. A size of ffffffff, which writers into a pipe leave, means up to
/// the end.
/// @throws Error (input) for another form (RF64 among them), samples that are no PCM of 8, 16, 24 or 32 bits
/// nor floats of 32, no or over 64 channels, and sizes that do not fit together.
SoundShape sound_shape(std::string_view bytes, const std::string& file);

/// Checks that a sound has the rate that models hear at. @throws Error (input) with what to do otherwise
void require_rate(const SoundShape& shape, const std::string& file, std::int32_t rate = kSoundRate);

/// Returns the samples of a WAV file, 1 being full scale, the mean over channels. Nothing is resampled.
/// @throws Error (input) as sound_shape() does, for another rate, and for floats that are not finite.
std::vector<float> decode_sound(std::string_view bytes, const std::string& file,
                                std::int32_t rate = kSoundRate);

/// MelOptions say which spectrum a model takes.
struct MelOptions {
  std::int32_t bins = 128;   ///< 128 of Qwen2-Audio and Whisper large-v3, 80 of older ones
  bool pad_to_chunk = true;  ///< with silence to kChunkSamples
};

inline constexpr std::int64_t kMelWindow = 400;               ///< samples of a frame
inline constexpr std::int64_t kMelHop = 160;                  ///< samples from frame to frame
inline constexpr std::int64_t kSoundChunk = 30 * kSoundRate;  ///< samples that an encoder takes at once

/// Reads the settings of a WhisperFeatureExtractor, in the form of a preprocessor_config.json. Absent keys
/// have the values that are computed with; of bins those of `usual`.
/// @throws Error (input) with `file` and key for another extractor, and for another rate, window, hop or
/// padding than what is computed
MelOptions parse_sound_processor(std::string_view json, const std::string& file, const MelOptions& usual);

/// A MelSpectrum has a frame for every kMelHop samples.
struct MelSpectrum {
  std::int32_t bins = 0;
  std::int64_t frames = 0;
  std::int64_t valid_frames = 0;  ///< that begin within the sound; the others are padding
  std::vector<float> values;      ///< [bins, frames]
};

/// Returns how many frames, and valid ones, log_mel() makes of so many samples.
/// @throws Error (input) as log_mel() does.
MelSpectrum mel_shape(std::int64_t samples, const MelOptions& options);

/// Returns the triangular filters between 0 and 8,000 Hz on Slaney's mel scale, each of area 1: [bins, 201].
std::vector<double> mel_filters(std::int32_t bins);

/// Returns (max(log10 p, m - 8) + 4) / 4 for the mel power p, at least 1e-10, and its maximum m: frames of
/// 400 samples under a Hann window, the sound mirrored at both ends.
/// @throws Error (input) for no samples or fewer than a frame's hop, bins outside 1 to 512, and where it is
/// to be padded, more samples than kSoundChunk: the caller cuts.
MelSpectrum log_mel(std::span<const float> samples, const MelOptions& options = {});

}  // namespace dflop
