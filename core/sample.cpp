#include "core/sample.hpp"

#include <array>

namespace dflop {
namespace {

constexpr std::array<std::string_view, kModalities> kSampleNames = {"text", "image", "multi_image", "video",
                                                                    "audio"};

}  // namespace

std::string_view to_string(Modality modality) {
  return kSampleNames[static_cast<std::size_t>(modality)];
}

std::optional<Modality> modality_from_string(std::string_view name) {
  for (std::size_t i = 0; i < kSampleNames.size(); ++i) {
    if (kSampleNames[i] == name) return static_cast<Modality>(i);
  }
  return std::nullopt;
}

Workload& Workload::operator+=(const Workload& other) {
  sequences += other.sequences;
  tokens += other.tokens;
  attention_pairs += other.attention_pairs;
  return *this;
}

Workload operator+(Workload a, const Workload& b) {
  return a += b;
}

Workload Sample::encoder() const {
  Workload work;
  for (const EncoderSequences& group : encoder_sequences) {
    work += {group.count, group.count * group.tokens, group.count * group.attention_pairs};
  }
  return work;
}

}  // namespace dflop
