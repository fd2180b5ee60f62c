#include <vector>

#include "tests/fuzz/fuzz_target.hpp"
#include "traces/tokens/chat.hpp"

namespace {

using namespace dflop;

void check(const ChatTokens& tokens) {
  require(tokens.ids.size() == tokens.is_trained.size());
  for (const MediumPlace& place : tokens.media) {
    require(place.begin + place.count <= tokens.ids.size());
    for (std::size_t i = place.begin; i < place.begin + place.count; ++i) require(tokens.is_trained[i] == 0);
  }
}

void encode(const Tokenizer& tokenizer, const Conversation& conversation, std::string_view form) {
  const ChatTokenizer chat(tokenizer, form, "qwen2.5-vl");
  const std::vector<std::int64_t> counts(conversation.media().size(), 2);
  WordCache cache;
  ChatTokens tokens = chat.encode(conversation, counts, cache, "fuzz");
  require(tokens.media.size() == counts.size());
  check(tokens);
  tokens.cut(tokens.ids.size() / 2, "fuzz");
  check(tokens);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Tokenizer tokenizer(DFLOP_SOURCE_DIR "/tests/golden/io/tokenizer-qwen2.json");
  for (const std::string_view form : {"qwen2", "qwen3", "plain"}) {
    run_fuzz_target(data, size, [&](std::string_view json) {
      encode(tokenizer, parse_conversation(json, "fuzz.json"), form);
    });
  }
  return 0;
}
