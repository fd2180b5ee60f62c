#include "traces/tokens/tokenizer.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/core/input_error.hpp"
#include "traces/text/text_file.hpp"

namespace dflop::testing {
namespace tokenizer_test {

std::string golden(const std::string& name) {
  return DFLOP_SOURCE_DIR "/tests/golden/io/" + name;
}

TEST(Tokenizers, GiveTheIdsOfHuggingFacesLibrary) {
  for (const std::string family : {"qwen2", "llama3"}) {
    const Tokenizer tokenizer(golden("tokenizer-" + family + ".json"));
    const auto cases = nlohmann::json::parse(read_text_file(golden("tokens-" + family + ".json")));
    ASSERT_GT(cases.size(), 100u);
    WordCache cache;
    for (const auto& each : cases) {
      const auto text = each.at("text").get<std::string>();
      const auto ids = each.at("ids").get<std::vector<std::int32_t>>();
      EXPECT_EQ(tokenizer.encode(text), ids) << family << ": " << text;
      EXPECT_EQ(tokenizer.encode(text, cache), ids) << family << ": " << text;
    }
  }
}

TEST(Tokenizers, NameTheFirstByteThatIsNotUtf8) {
  const Tokenizer tokenizer(golden("tokenizer-qwen2.json"));
  const std::string error = input_error([&] { tokenizer.encode("ab\xFFz"); });
  EXPECT_NE(error.find("0xff"), std::string::npos) << error;
  EXPECT_NE(error.find("offset 2"), std::string::npos) << error;
}

}  // namespace tokenizer_test
}  // namespace dflop::testing
