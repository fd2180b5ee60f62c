// Results that would take too much memory are rejected in advance, and files written for people are safe to
// open.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "tests/cli/run.hpp"
#include "traces/text/text_file.hpp"

namespace dflop::testing {
namespace limits_test {

/// In a step of 1F1B on 4,096 stages and 512 microbatches, each stage runs a forward and a backward of every
/// microbatch, and neighboring stages exchange messages: 4,096 x 512 x 2 compute, and 4,095 x 512 x 4 ends of
/// messages, 12,580,864 in all.
TEST(SimulateLimits, TracesOfManySpansAreRejectedBeforeTheyAreMade) {
  const Sandbox sandbox;
  write_all(
      sandbox.path("large.json"),
      R"({"schema": "dflop.pipeline", "version": 1, "schedule": "1f1b", "stages": 4096, "microbatches": 512,
                "forward_s": 0.01, "backward_s": 0.02})");
  for (const auto& [option, file] : std::map<std::string, std::string>{
           {"--perfetto", "file.json"}, {"--out", "file.json"}, {"--picture", "file.svg"}}) {
    const RunResult result = sandbox.run("simulate --pipeline large.json " + option + ' ' + file);
    expect_error(result, {file, "would have 12580864 spans", "take at most 4194304"});
    EXPECT_FALSE(sandbox.has(file));
  }
  write_all(sandbox.path("small.json"), two_stages());
  EXPECT_EQ(sandbox.run("simulate --pipeline small.json --perfetto p.json --out t.json").exit_code, 0);
}

TEST(DataIds, FormulasAreNotRunBySpreadsheetsAndIdsComeBack) {
  const Sandbox sandbox;
  const std::string header =
      "id,source,subset,modality,media,n_images,images,video_s,video_fps,video_frames,video_wh,audio_s,n_texts,"
      "prompt_tokens,answer_tokens,text_tokens\n";
  const std::string rest = ",s,t,text,,,,,,,,,1,,,40\n";
  write_all(sandbox.path("first.csv"), header + "=cmd|'/C calc'!A0" + rest + "-1.5" + rest + "plain" + rest);
  const std::string command = " --model llava-ov-llama3-8b --samples-out ";
  ASSERT_EQ(sandbox.run("data --data first.csv" + command + "rows.csv").exit_code, 0);
  const std::string rows = read_all(sandbox.path("rows.csv"));
  EXPECT_NE(rows.find("\n'=cmd|'/C calc'!A0,"), std::string::npos) << rows;
  EXPECT_NE(rows.find("\n-1.5,"), std::string::npos) << rows;
  EXPECT_NE(rows.find("\nplain,"), std::string::npos) << rows;
  // Records with the ids of the rows are records with the original ids.
  write_all(sandbox.path("second.csv"),
            header + "'=cmd|'/C calc'!A0" + rest + "-1.5" + rest + "plain" + rest);
  ASSERT_EQ(sandbox.run("data --data second.csv" + command + "again.csv").exit_code, 0);
  EXPECT_EQ(read_all(sandbox.path("again.csv")), rows);
  ASSERT_EQ(sandbox.run("data --data second.csv" + command + "samples.json").exit_code, 0);
  EXPECT_NE(read_all(sandbox.path("samples.json")).find("\"=cmd|'/C calc'!A0\""), std::string::npos);
}

/// Slightly more than 1 GiB of blanks, in a file of one or two megabytes.
TEST(ReplayLimits, AFileThatUnpacksToTooMuchIsRejectedWithTheLimit) {
  const Sandbox sandbox;
  const std::string packed = gzip(std::string(std::size_t{1} << 24, ' '));
  std::string bomb;  // concatenated streams unpack to their concatenated texts
  for (int i = 0; i < 65; ++i) bomb += packed;
  write_all(sandbox.path("bomb.json.gz"), bomb);
  ASSERT_LT(std::filesystem::file_size(sandbox.path("bomb.json.gz")), 4'000'000U);
  expect_error(sandbox.run("replay --trace bomb.json.gz"), {"bomb.json.gz", "unpacks to more than 1 GiB"});
}

}  // namespace limits_test
}  // namespace dflop::testing
