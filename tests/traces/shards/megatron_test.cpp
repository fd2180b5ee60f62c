#include "traces/shards/megatron.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "traces/text/text_file.hpp"

namespace dflop::testing {
namespace megatron_test {

TEST(MegatronFiles, HaveTheSequencesThatWereWritten) {
  const std::string prefix = DFLOP_SOURCE_DIR "/tests/golden/io/text";
  const auto written =
      nlohmann::json::parse(read_text_file(prefix + ".json")).get<std::vector<std::vector<std::int32_t>>>();
  const MegatronFile file(prefix);
  ASSERT_EQ(file.size(), written.size());
  for (std::size_t i = 0; i < written.size(); ++i) EXPECT_EQ(file.read(i), written[i]) << i;
}

}  // namespace megatron_test
}  // namespace dflop::testing
