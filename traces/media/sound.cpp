#include "traces/media/sound.hpp"

#include <soxr.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <numbers>
#include <optional>
#include <unsupported/Eigen/FFT>

#include "core/refuse.hpp"
#include "traces/text/first_bytes.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

constexpr std::int32_t kMaxChannels = 64;
constexpr std::uint32_t kMinRate =
    1000;  // below, resampling would use far more memory than the file has bytes
constexpr std::uint32_t kMaxRate = 1'000'000;
constexpr std::uint32_t kUnknownSize = 0xFFFFFFFF;
constexpr unsigned kPcm = 1;
constexpr unsigned kFloat = 3;
constexpr unsigned kALaw = 6;
constexpr unsigned kMuLaw = 7;
constexpr unsigned kExtensible = 0xFFFE;

/// The codes of WAVE_FORMAT_EXTENSIBLE are GUIDs: the two bytes of a code, followed by these bytes.
constexpr std::string_view kGuidEnd("\x00\x00\x00\x00\x10\x00\x80\x00\x00\xAA\x00\x38\x9B\x71", 14);

/// Reads a little-endian number of up to four bytes.
std::uint32_t read_little(std::string_view bytes, std::size_t at, std::size_t count) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < count; ++i) {
    value |= std::uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  }
  return value;
}

/// A WavFile holds the layout of a file.
struct WavFile {
  SoundShape shape;
  unsigned code = kPcm;
  std::size_t sample_bytes = 0;  ///< per channel
  std::size_t data = 0;          ///< offset of the first sample
};

/// Reads the chunk that describes the samples; its content begins at `at`.
WavFile read_format(std::string_view bytes, std::size_t at, std::uint32_t size, const std::string& file) {
  const std::string place = offset_place(file, at);
  if (size < 16) refuse_input(place, "expected a chunk 'fmt ' of 16 bytes or more, found {}", size);
  unsigned code = read_little(bytes, at, 2);
  const unsigned bits = read_little(bytes, at + 14, 2);
  if (code == kExtensible) {
    if (size < 40) refuse_input(place, "expected an extensible chunk 'fmt ' of 40 bytes, found {}", size);
    if (bytes.substr(at + 26, kGuidEnd.size()) != kGuidEnd) {
      refuse_input(offset_place(file, at + 24), "expected PCM or float samples, found another sample format");
    }
    code = read_little(bytes, at + 24, 2);
  }
  const bool is_pcm = code == kPcm && (bits == 8 || bits == 16 || bits == 24 || bits == 32);
  const bool is_float = code == kFloat && (bits == 32 || bits == 64);
  const bool is_law = (code == kALaw || code == kMuLaw) && bits == 8;
  if (!is_pcm && !is_float && !is_law) {
    refuse_input(
        place,
        "expected PCM (code 1) of 8, 16, 24 or 32 bits, floats (code 3) of 32 or 64, or A-law or mu-law "
        "(codes 6 and 7) of 8, found code {} of {} bits",
        code, bits);
  }
  const std::uint32_t channels = read_little(bytes, at + 2, 2);
  if (channels < 1 || channels > kMaxChannels) {
    refuse_input(place, "expected 1 to {} channels, found {}", kMaxChannels, channels);
  }
  const std::uint32_t rate = read_little(bytes, at + 4, 4);
  if (rate < kMinRate || rate > kMaxRate)
    refuse_input(place, "expected a rate of {} to {} Hz, found {}", kMinRate, kMaxRate, rate);
  const std::uint32_t frame = read_little(bytes, at + 12, 2);
  if (frame != channels * bits / 8) {
    refuse_input(place, "expected {} bytes per frame, for {} channels of {} bits, found {}",
                 channels * bits / 8, channels, bits, frame);
  }
  return {{static_cast<std::int32_t>(rate), static_cast<std::int32_t>(channels), 0}, code, bits / 8, 0};
}

WavFile read_headers(std::string_view bytes, const std::string& file) {
  if (bytes.size() < 12 || !bytes.starts_with("RIFF") || bytes.substr(8, 4) != "WAVE") {
    const std::string_view other = medium_that_begins(bytes);
    refuse_input(file, "expected a WAV file, which begins with 'RIFF', a size and 'WAVE', found {}",
                 bytes.starts_with("RF64") ? "RF64"
                 : other.empty()           ? "another kind or fewer bytes"
                                           : other);
  }
  std::optional<WavFile> wav;
  std::size_t at = 12;
  while (bytes.size() - at >= 8) {
    const std::string_view name = bytes.substr(at, 4);
    std::uint32_t size = read_little(bytes, at + 4, 4);
    at += 8;
    const std::size_t left = bytes.size() - at;
    const bool is_data = name == "data";
    if (is_data && size == kUnknownSize && left < kUnknownSize) size = static_cast<std::uint32_t>(left);
    if (size > left) {
      refuse_input(offset_place(file, at), "expected a chunk of {} bytes, found {}: the file is cut short",
                   size, left);
    }
    if (is_data) {
      if (!wav) refuse_input(offset_place(file, at), "expected a chunk 'fmt ' before 'data', found none");
      const auto frame =
          static_cast<std::uint32_t>(wav->sample_bytes) * static_cast<std::uint32_t>(wav->shape.channels);
      if (size % frame != 0) {
        refuse_input(offset_place(file, at), "expected a multiple of {} bytes, the size of a frame, found {}",
                     frame, size);
      }
      wav->shape.samples = size / frame;
      wav->data = at;
      return *wav;
    }
    if (name == "fmt ") wav = read_format(bytes, at, size, file);
    at += std::min<std::size_t>(left, std::size_t{size} + size % 2);  // chunks begin at even offsets
  }
  refuse_input(offset_place(file, at), "expected a chunk 'data', found the end of the file");
}

/// Returns the 16-bit number that a byte in A-law stands for (ITU-T G.711).
int from_a_law(unsigned byte) {
  byte ^= 0x55;
  const unsigned exponent = (byte >> 4) & 7;
  const unsigned mantissa = ((byte & 15) << 4) + 8;
  const auto size = static_cast<int>(exponent == 0 ? mantissa : (mantissa + 256) << (exponent - 1));
  return (byte & 0x80) != 0 ? size : -size;
}

/// Returns the 16-bit number that a byte in mu-law stands for (ITU-T G.711).
int from_mu_law(unsigned byte) {
  constexpr int kBias = 132;
  byte = ~byte & 0xFF;
  const int size = (static_cast<int>((byte & 15) << 3) + kBias) << ((byte >> 4) & 7);
  return (byte & 0x80) != 0 ? kBias - size : size - kBias;
}

/// Returns one channel's sample; 1 is full scale.
float read_sample(std::string_view bytes, std::size_t at, const WavFile& wav) {
  if (wav.code == kFloat && wav.sample_bytes == 8) {
    const std::uint64_t high = read_little(bytes, at + 4, 4);
    return static_cast<float>(std::bit_cast<double>(high << 32 | read_little(bytes, at, 4)));
  }
  const std::uint32_t raw = read_little(bytes, at, wav.sample_bytes);
  if (wav.code == kFloat) return std::bit_cast<float>(raw);
  if (wav.code == kALaw) return static_cast<float>(from_a_law(raw)) / 32768;
  if (wav.code == kMuLaw) return static_cast<float>(from_mu_law(raw)) / 32768;
  if (wav.sample_bytes == 1) return (static_cast<float>(raw) - 128) / 128;  // 8-bit samples are unsigned
  // Shift the sign to the sign bit of a 32-bit number.
  const auto number = static_cast<std::int32_t>(raw << (32 - 8 * wav.sample_bytes));
  return static_cast<float>(number * 0x1.0p-31);
}

/// Resamples a sound like librosa.load(), with which transformers reads sounds: soxr's high quality, cut or
/// filled with silence to resampled_length().
std::vector<float> resampled(const std::vector<float>& samples, std::int32_t from, std::int32_t to,
                             const std::string& file) {
  std::vector<float> out(static_cast<std::size_t>(resampled_length(std::ssize(samples), from, to)) + 1);
  const soxr_io_spec_t form = soxr_io_spec(SOXR_FLOAT32_I, SOXR_FLOAT32_I);
  const soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
  const soxr_runtime_spec_t runtime = soxr_runtime_spec(1);  // threads
  std::size_t done = 0;
  const soxr_error_t error = soxr_oneshot(from, to, 1, samples.data(), samples.size(), nullptr, out.data(),
                                          out.size(), &done, &form, &quality, &runtime);
  if (error != nullptr)
    throw Error(ErrorKind::internal, fmt::format("libsoxr: {}", soxr_strerror(error)), file);
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(done), out.end(), 0.0f);
  out.pop_back();
  if (!std::all_of(out.begin(), out.end(), [](float sample) { return std::isfinite(sample); }))
    refuse_input(file, "expected samples that can be resampled, found values near the largest float");
  return out;
}

constexpr std::size_t kLines = kMelWindow / 2 + 1;  ///< of the spectrum
constexpr double kMinPower = 1e-10;
constexpr double kHighestHertz = kSoundRate / 2.0;

// Slaney's mel scale is linear up to 1,000 Hz and logarithmic beyond.
constexpr double kLinearHertz = 1000;
constexpr double kLinearMel = 15;
const double kLogStep = std::log(6.4) / 27;

double to_mel(double hertz) {
  return hertz < kLinearHertz ? 3 * hertz / 200 : kLinearMel + std::log(hertz / kLinearHertz) / kLogStep;
}

double to_hertz(double mel) {
  return mel < kLinearMel ? 200 * mel / 3 : kLinearHertz * std::exp(kLogStep * (mel - kLinearMel));
}

/// A MelBand is a filter without the zeros around it.
struct MelBand {
  std::size_t first = 0;
  std::vector<double> weights;
};

std::vector<MelBand> make_bands(std::int32_t bins) {
  const std::vector<double> filters = mel_filters(bins);
  std::vector<MelBand> bands;
  for (auto row = filters.begin(); row != filters.end(); row += kLines) {
    const auto is_used = [](double weight) { return weight != 0; };
    const auto begin = std::find_if(row, row + kLines, is_used);
    const auto end = std::find_if_not(begin, row + kLines, is_used);
    bands.push_back({static_cast<std::size_t>(begin - row), {begin, end}});
  }
  return bands;
}

/// Returns the position of a sample in a sound mirrored at both ends, without doubling the end samples.
std::int64_t mirrored(std::int64_t at, std::int64_t size) {
  if (size == 1) return 0;
  const std::int64_t period = 2 * (size - 1);
  const std::int64_t within = ((at % period) + period) % period;
  return std::min(within, period - within);
}

std::vector<double> hann_window() {
  std::vector<double> window(kMelWindow);
  for (std::size_t i = 0; i < window.size(); ++i) {
    window[i] = 0.5 - 0.5 * std::cos(2 * std::numbers::pi * static_cast<double>(i) / kMelWindow);
  }
  return window;
}

/// A PowerSpectrum computes the power of a frame at each line. It reuses its buffers for all frames.
class PowerSpectrum {
 public:
  PowerSpectrum() { fft_.SetFlag(Eigen::FFT<double>::HalfSpectrum); }

  /// `length` is the length of the sound including padding.
  const std::vector<double>& of_frame(std::span<const float> samples, std::int64_t length,
                                      std::int64_t frame) {
    const std::int64_t begin = frame * kMelHop - kMelWindow / 2;
    for (std::int64_t i = 0; i < kMelWindow; ++i) {
      const auto from = static_cast<std::size_t>(mirrored(begin + i, length));
      const auto to = static_cast<std::size_t>(i);
      frame_[to] = from < samples.size() ? double{samples[from]} * window_[to] : 0;
    }
    fft_.fwd(lines_.data(), frame_.data(), kMelWindow);
    // The reference library stores the spectrum as floats before squaring.
    for (std::size_t i = 0; i < kLines; ++i)
      power_[i] = std::norm(std::complex<double>(std::complex<float>(lines_[i])));
    return power_;
  }

 private:
  Eigen::FFT<double> fft_;
  const std::vector<double> window_ = hann_window();
  std::vector<double> frame_ = std::vector<double>(kMelWindow);
  std::vector<std::complex<double>> lines_ = std::vector<std::complex<double>>(kLines);
  std::vector<double> power_ = std::vector<double>(kLines);
};

}  // namespace

SoundShape sound_shape(std::string_view bytes, const std::string& file) {
  return read_headers(bytes, file).shape;
}

std::int64_t resampled_length(std::int64_t samples, std::int32_t from, std::int32_t to) {
  return static_cast<std::int64_t>(
      std::ceil(static_cast<double>(samples) * (static_cast<double>(to) / from)));
}

std::vector<float> decode_sound(std::string_view bytes, const std::string& file, std::int32_t rate) {
  const WavFile wav = read_headers(bytes, file);
  std::vector<float> samples(static_cast<std::size_t>(wav.shape.samples));
  std::size_t at = wav.data;
  for (float& sample : samples) {
    const std::size_t frame = at;
    float sum = 0;
    for (std::int32_t c = 0; c < wav.shape.channels; ++c, at += wav.sample_bytes)
      sum += read_sample(bytes, at, wav);
    sample = sum / static_cast<float>(wav.shape.channels);
    if (!std::isfinite(sample))
      refuse_input(offset_place(file, frame), "expected finite samples, found {}", sample);
  }
  if (wav.shape.rate == rate || samples.empty()) return samples;
  return resampled(samples, wav.shape.rate, rate, file);
}

MelSpectrum mel_shape(std::int64_t samples, const MelOptions& options) {
  if (options.bins < 1 || options.bins > 512) {
    refuse_input("", "expected 1 to 512 mel bins, found {}", options.bins);
  }
  const std::int64_t most = options.pad_to_chunk ? options.chunk : std::numeric_limits<std::int64_t>::max();
  if (samples < kMelHop || samples > most) {
    refuse_input("", "expected a sound of {} to {} samples, found {}", kMelHop, most, samples);
  }
  MelSpectrum shape;
  shape.bins = options.bins;
  shape.frames = (options.pad_to_chunk ? options.chunk : samples) / kMelHop;
  shape.valid_frames = std::min(shape.frames, (samples + kMelHop - 1) / kMelHop);
  if (!options.keeps_padding) shape.frames = shape.valid_frames;
  return shape;
}

std::vector<double> mel_filters(std::int32_t bins) {
  const double highest = to_mel(kHighestHertz);
  const auto edge = [&](std::int32_t i) { return to_hertz(highest * i / (bins + 1)); };
  std::vector<double> filters;
  filters.reserve(static_cast<std::size_t>(bins) * kLines);
  for (std::int32_t bin = 0; bin < bins; ++bin) {
    const double low = edge(bin);
    const double middle = edge(bin + 1);
    const double high = edge(bin + 2);
    for (std::size_t line = 0; line < kLines; ++line) {
      const double hertz = kHighestHertz * static_cast<double>(line) / (kLines - 1);
      const double height = std::min((hertz - low) / (middle - low), (high - hertz) / (high - middle));
      filters.push_back(std::max(0.0, height) * 2 / (high - low));
    }
  }
  return filters;
}

MelSpectrum log_mel(std::span<const float> samples, const MelOptions& options) {
  MelSpectrum mel = mel_shape(static_cast<std::int64_t>(samples.size()), options);
  const std::int64_t length =
      options.pad_to_chunk ? options.chunk : static_cast<std::int64_t>(samples.size());
  const auto frames = static_cast<std::size_t>(mel.frames);
  const std::vector<MelBand> bands = make_bands(options.bins);
  // Frames beyond the sound stay silent.
  mel.values.assign(bands.size() * frames, static_cast<float>(std::log10(kMinPower)));
  PowerSpectrum spectrum;
  for (std::int64_t frame = 0; frame < mel.frames; ++frame) {
    if (frame * kMelHop - kMelWindow / 2 >= static_cast<std::int64_t>(samples.size())) break;
    const std::vector<double>& power = spectrum.of_frame(samples, length, frame);
    for (std::size_t bin = 0; bin < bands.size(); ++bin) {
      double sum = 0;
      for (std::size_t i = 0; i < bands[bin].weights.size(); ++i)
        sum += bands[bin].weights[i] * power[bands[bin].first + i];
      mel.values[bin * frames + static_cast<std::size_t>(frame)] =
          static_cast<float>(std::log10(std::max(kMinPower, sum)));
    }
  }
  const float floor = *std::max_element(mel.values.begin(), mel.values.end()) - 8;
  for (float& value : mel.values) value = (std::max(value, floor) + 4) / 4;
  return mel;
}

}  // namespace dflop
