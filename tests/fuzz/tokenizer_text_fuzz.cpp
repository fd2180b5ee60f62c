// Arbitrary texts as tokens of three small tokenizers: byte-level BPE with NFC (Qwen2) and without (Llama 3),
// and SentencePiece's BPE with byte fallback (Llama 2).
#include <string>

#include "tests/fuzz/fuzz_target.hpp"
#include "traces/tokens/tokenizer.hpp"

namespace {

using namespace dflop;

void check(const Tokenizer& tokenizer, std::string_view text, bool is_kept) {
  WordCache cache;
  const auto ids = tokenizer.encode(text, cache);
  require(tokenizer.encode(text, cache) == ids);  // from the cache
  require(tokenizer.encode(text) == ids);
  for (const std::int32_t id : ids) require(id >= 0 && id < tokenizer.vocabulary_size());
  const std::string decoded = tokenizer.decode(ids);
  if (is_kept) require(decoded == text);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::string golden = DFLOP_SOURCE_DIR "/tests/golden/io/tokenizer-";
  static const Tokenizer qwen2(golden + "qwen2.json");
  static const Tokenizer llama3(golden + "llama3.json");
  static const Tokenizer llama2(golden + "llama2.json");
  return run_fuzz_target(data, size, [](std::string_view text) {
    check(qwen2, text, false);  // NFC changes texts
    check(llama3, text, true);
    // The mark of a space decodes to a space, and a text that follows an added token, such as <s>, gets a
    // space.
    const bool is_plain =
        text.find("\u2581") == std::string_view::npos && text.find('<') == std::string_view::npos;
    check(llama2, text, is_plain);
  });
}
