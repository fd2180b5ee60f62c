// A Record is one row of a data set. A Sample is a Record after one model's preprocessing.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/names.hpp"

namespace dflop {

/// A SampleCut counts how much of the samples exceeds a model's max sequence length.
struct SampleCut {
  std::int64_t longest = 0;  ///< max LLM tokens of a sample; 0: no limit
  std::int64_t samples = 0;  ///< samples longer than `longest`
  std::int64_t tokens = 0;   ///< LLM tokens of all samples before cutting
  std::int64_t lost = 0;     ///< LLM tokens that were cut off
  bool drops = false;        ///< longer samples are dropped entirely

  /// Returns the fraction of all tokens that is cut off.
  double share() const { return tokens > 0 ? static_cast<double>(lost) / static_cast<double>(tokens) : 0; }
  /// Counts a sample of this many LLM tokens, and returns how many are left.
  std::int64_t take(std::int64_t length) {
    const std::int64_t left = longest > 0 && length > longest ? longest : length;
    tokens += length;
    lost += length - left;
    samples += left < length ? 1 : 0;
    return left;
  }
  bool operator==(const SampleCut&) const = default;
};

enum class Modality : std::uint8_t { text, image, multi_image, video, audio };
inline constexpr int kModalities = 5;

template <>
inline constexpr NameTable<Modality, kModalities> kNames<Modality> = {{{Modality::text, "text"},
                                                                       {Modality::image, "image"},
                                                                       {Modality::multi_image, "multi_image"},
                                                                       {Modality::video, "video"},
                                                                       {Modality::audio, "audio"}}};

struct ImageSize {
  std::int32_t width = 0;
  std::int32_t height = 0;

  bool operator==(const ImageSize&) const = default;
};

/// A Record is one data set row and holds only shapes. An empty optional means that the source does not give
/// the value.
struct Record {
  std::string id;
  Modality modality = Modality::text;
  std::int32_t image_count = 0;
  std::vector<ImageSize> images;  ///< empty, or image_count sizes
  std::optional<double> video_s;
  std::optional<double> video_fps;
  std::optional<std::int64_t> video_frames;
  std::optional<ImageSize> video_size;
  std::optional<double> audio_s;
  std::optional<std::int64_t> text_tokens = 0;
  std::int64_t row = 0;  ///< line in the file; the header is line 1
};

/// A SecondWork is the work of a model's second encoder (ModelSpec::second), counted as in a Workload.
struct SecondWork {
  std::int64_t sequences = 0;
  std::int64_t tokens = 0;
  std::int64_t attention_pairs = 0;

  auto operator<=>(const SecondWork&) const = default;
};

/// A Workload is the work of one module, in the quantities its cost depends on: linear layers depend on
/// `tokens`, attention on `attention_pairs`.
struct Workload {
  std::int64_t sequences = 0;
  std::int64_t tokens = 0;
  /// This is the sum of s² over sequences of s tokens. If some layers attend only within windows, it is the
  /// mean over the layers, rounded. Causal halving is not included.
  std::int64_t attention_pairs = 0;
  /// This is the number of LLM tokens that are known to have no trained prediction. Runs that compute logits
  /// only for trained tokens (TransformerSpec::logits_at_once) skip them in the head.
  std::int64_t untrained_tokens = 0;
  SecondWork second = {};  ///< of the second encoder; zero for an LLM and for models with one encoder

  auto operator<=>(const Workload&) const = default;
  Workload& operator+=(const Workload& other) {
    sequences += other.sequences;
    tokens += other.tokens;
    attention_pairs += other.attention_pairs;
    untrained_tokens += other.untrained_tokens;
    second.sequences += other.second.sequences;
    second.tokens += other.second.tokens;
    second.attention_pairs += other.second.attention_pairs;
    return *this;
  }
  /// Returns the tokens of both encoders, or of the LLM.
  std::int64_t all_tokens() const { return tokens + second.tokens; }
  bool empty() const { return all_tokens() == 0; }
  /// Returns the second encoder's work as the work of an only encoder.
  Workload of_second() const { return {second.sequences, second.tokens, second.attention_pairs}; }
};

inline Workload operator+(Workload a, const Workload& b) {
  return a += b;
}

/// EncoderSequences are `count` equal encoder sequences (tiles, frames, temporal slots, 30 s chunks).
struct EncoderSequences {
  std::int64_t count = 0;
  std::int64_t tokens = 0;           ///< of one sequence
  std::int64_t attention_pairs = 0;  ///< of one sequence
  bool second = false;               ///< the second encoder's

  Workload work() const {
    const SecondWork all{count, count * tokens, count * attention_pairs};
    if (second) return {0, 0, 0, 0, all};
    return {all.sequences, all.tokens, all.attention_pairs};
  }
  bool operator==(const EncoderSequences&) const = default;
};

/// A Sample is a Record after one model's preprocessing.
struct Sample {
  std::string id;
  Modality modality = Modality::text;
  std::vector<EncoderSequences> encoder_sequences;
  /// This is the number of LLM tokens that come from the encoder and connector (visual or audio tokens).
  std::int64_t encoder_output_tokens = 0;
  /// This is encoder_output_tokens plus text tokens, truncated to the max length if there is one.
  std::int64_t llm_tokens = 0;
  /// This is the number of LLM tokens that have no trained prediction, according to the data.
  std::int64_t untrained_tokens = 0;

  Workload encoder() const {
    Workload work;
    for (const EncoderSequences& group : encoder_sequences) work += group.work();
    return work;
  }
  Workload llm() const {
    return {llm_tokens > 0 ? 1 : 0, llm_tokens, llm_tokens * llm_tokens, untrained_tokens};
  }
};

}  // namespace dflop
