// Qwen2-Audio (transformers processing_qwen2_audio.py, modeling_qwen2_audio.py) over Whisper's front end
// (openai/whisper @c0d2f624c09d whisper/audio.py).
#include <algorithm>
#include <cmath>

#include "traces/preprocess/rules.hpp"

namespace dflop {
namespace {

constexpr double kSamplesPerSecond = 16'000;
constexpr std::int64_t kHop = 160;               ///< samples of one mel frame
constexpr std::int64_t kChunkSamples = 480'000;  ///< 30 s, what the encoder takes at once
constexpr std::int64_t kChunkPositions = 1'500;  ///< whether the chunk is full or not

/// LLM tokens of a chunk. Of L mel frames the stride-2 convolution leaves (L - 1) / 2 + 1 and the pooling by
/// two half of those, rounded down: (L + 1) / 4 in all.
std::int64_t chunk_tokens(std::int64_t samples) {
  return (samples / kHop + 1) / 4;
}

/// Counted in samples, because 2.07 s * 100 frames a second is 206.99... in floating point.
Encoding encode_audio(const RecordShapes& shapes) {
  const std::int64_t samples = std::llround(shapes.audio_s() * kSamplesPerSecond);
  const std::int64_t full_chunks = samples / kChunkSamples;
  const std::int64_t rest = samples % kChunkSamples;
  const std::int64_t chunks = full_chunks + (rest > 0 ? 1 : 0);
  return {{{chunks, kChunkPositions, kChunkPositions * kChunkPositions}},
          full_chunks * chunk_tokens(kChunkSamples) + chunk_tokens(rest)};
}

}  // namespace

Rule qwen2_audio_rule() {
  return {"qwen2-audio", {encode_text, nullptr, nullptr, nullptr, encode_audio}};
}

}  // namespace dflop
