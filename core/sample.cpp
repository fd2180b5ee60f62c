#include "core/sample.hpp"

namespace dflop {

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
