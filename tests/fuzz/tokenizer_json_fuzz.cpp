#include "tests/fuzz/fuzz_target.hpp"
#include "traces/tokens/tokenizer.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dflop;
  return run_fuzz_target(data, size, [](std::string_view json) {
    const Tokenizer tokenizer(json, "fuzz.json");
    WordCache cache;
    for (const std::string_view text :
         {"Hello, world's 1234\n\n  <|im_end|>", "e\u0301 \u65e5\u672c\u8a9e aaaaaaaa"}) {
      const auto ids = tokenizer.encode(text, cache);
      require(tokenizer.encode(text, cache) == ids);  // from the cache
      for (const std::int32_t id : ids) require(id >= 0 && id < tokenizer.vocabulary_size());
      tokenizer.decode(ids);
    }
  });
}
