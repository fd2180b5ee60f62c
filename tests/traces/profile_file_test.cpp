#include "traces/data/profile.hpp"

#include "core/support/random.hpp"
#include "tests/traces/file_fixtures.hpp"

namespace dflop {
namespace profile_file_test {

DataProfile example() {
  Random random(2);
  std::vector<double> values;
  for (int i = 0; i < 100; ++i) values.push_back(1000 * random.uniform());
  DataProfile profile;
  profile.samples = 100;
  profile.by_modality = {10, 20, 30, 40, 0};
  profile.series = {summarize("llm_tokens", values), summarize("empty", {})};
  return profile;
}

TEST(ProfileFile, ReadsBackUnchanged) {
  const std::string text = to_json(example(), "data.csv", "m");
  const DataProfileFile read = parse_data_profile(text, "p.json");
  EXPECT_EQ(read.data, "data.csv");
  EXPECT_EQ(read.model, "m");
  EXPECT_EQ(read.profile.by_modality, example().by_modality);
  ASSERT_EQ(read.profile.series.size(), 2U);
  EXPECT_EQ(read.profile.series[0].p95, example().series[0].p95);
  EXPECT_EQ(read.profile.series[0].mean, example().series[0].mean);
  EXPECT_EQ(read.profile.series[0].histogram.edges, example().series[0].histogram.edges);
  EXPECT_EQ(read.profile.series[0].histogram.counts, example().series[0].histogram.counts);
  EXPECT_EQ(to_json(read.profile, read.data, read.model), text);
}

TEST(ProfileFile, ContradictionsAreRejected) {
  const std::string good = to_json(example(), "data.csv", "m");
  const auto refused = [&](std::string_view from, std::string_view to, const std::string& key,
                           std::initializer_list<std::string_view> words) {
    expect_refused([&] { parse_data_profile(replaced(good, from, to), "p.json"); },
                   "p.json: key '" + key + "'", words);
  };
  refused("\"samples\": 100", "\"samples\": 99", "samples", {"expected 100", "found 99"});
  refused("\"min\": ", "\"min\": 99999", "series[0].p10", {"the previous quantile"});
  refused("\"histogram_counts\": [", "\"histogram_counts\": [1,", "series[0].histogram_counts",
          {"one count fewer than"});
  refused("\"histogram_edges\": [", "\"histogram_edges\": [1e9,", "series[0].histogram_counts",
          {"one count fewer than"});
  refused("\"audio\": 0", "\"audio\": -1", "samples_by_modality.audio", {"found -1"});
}

}  // namespace profile_file_test
}  // namespace dflop
