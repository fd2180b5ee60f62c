// A full disk gives an error of one line, and earlier files remain usable.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/run.hpp"

namespace dflop {
namespace train_disk_test {

using nlohmann::json;
using testing::RunResult;
using testing::Sandbox;

const std::string kModel = std::string(DFLOP_SOURCE_DIR) + "/tests/golden/models/internvl-300m-style";

/// While a SizeLimit exists, no file grows beyond it, as on a full disk.
class SizeLimit {
 public:
  explicit SizeLimit(rlim_t bytes) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &usual_), 0);
    rlimit small = usual_;
    small.rlim_cur = bytes;
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  }
  ~SizeLimit() { ::setrlimit(RLIMIT_FSIZE, &usual_); }
  SizeLimit(const SizeLimit&) = delete;
  SizeLimit& operator=(const SizeLimit&) = delete;

 private:
  rlimit usual_{};
};

struct TrainDisk : ::testing::Test {
  Sandbox sandbox;

  void SetUp() override { testing::write_all(sandbox.path("d.csv"), testing::image_records(0)); }
  RunResult train(const std::string& options) {
    return sandbox.run("train --learning-rate 0.01 --data d.csv --gbs 2 --format json --model " + kModel +
                       " " + options);
  }
  static std::vector<double> losses(const RunResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::vector<double> all;
    if (result.exit_code != 0) return all;
    for (const json& step : testing::rows_of(result.out)) all.push_back(step["loss"]);
    return all;
  }
  /// Expects exactly one error, in the last line, with all of the parts.
  static void expect_refused(const RunResult& result, const std::vector<std::string>& parts) {
    EXPECT_EQ(result.exit_code, 2) << result.err;
    const std::size_t at = result.err.find("dflop: error: ");
    ASSERT_NE(at, std::string::npos) << result.err;
    EXPECT_EQ(result.err.find('\n', at), result.err.size() - 1) << result.err;
    for (const std::string& part : parts)
      EXPECT_NE(result.err.find(part, at), std::string::npos) << result.err;
  }
};

TEST_F(TrainDisk, KeepsThePreviousCheckpoint) {
  const std::vector<double> whole = losses(train("--steps 3 --tp 2 --pp 2 --microbatches 2"));
  ASSERT_EQ(whole.size(), 3U);
  const std::string run = "--tp 2 --pp 2 --microbatches 2 --checkpoint run --every 1 ";
  losses(train(run + "--steps 1"));
  {
    const SizeLimit limit(64 << 10);  // of 1.7 MB on four ranks
    expect_refused(train(run + "--resume --steps 3"), {"run/step-00000002.part/rank-0000", "File too large",
                                                       "no checkpoint of step 2", "--resume"});
  }
  EXPECT_TRUE(sandbox.has("run/step-00000001/checkpoint.json"));
  EXPECT_FALSE(sandbox.has("run/step-00000002.part") || sandbox.has("run/step-00000002"));
  EXPECT_EQ(losses(train(run + "--resume --steps 3")), (std::vector<double>{whole[1], whole[2]}));
}

TEST_F(TrainDisk, LeavesNoHalfExport) {
  const std::string run = "--steps 1 --checkpoint run ";
  losses(train(run));
  for (const char* checkpoint : {"--checkpoint run --resume", ""}) {
    const SizeLimit limit(64 << 10);
    const RunResult result = train("--steps 1 --export out " + std::string(checkpoint));
    expect_refused(result, {"out.part/", "File too large"});
    EXPECT_EQ(result.err.find("the weights are in run/step-00000001") != std::string::npos,
              checkpoint[0] != 0)
        << result.err;
    EXPECT_FALSE(sandbox.has("out") || sandbox.has("out.part"));
  }
  losses(train(run + "--resume --export out"));
  EXPECT_TRUE(sandbox.has("out/model.safetensors"));
}

/// An incomplete line would corrupt the next one.
TEST_F(TrainDisk, LeavesWholeLinesInALog) {
  {
    const SizeLimit limit(1024);
    expect_refused(train("--steps 5 --log log.jsonl"), {"log.jsonl", "File too large"});
  }
  losses(train("--steps 1 --log log.jsonl"));
  std::istringstream log(testing::read_all(sandbox.path("log.jsonl")));
  std::vector<int> steps;
  for (std::string line; std::getline(log, line);) steps.push_back(json::parse(line)["step"]);
  ASSERT_GE(steps.size(), 3U);
  EXPECT_EQ(steps.front(), 1);
  EXPECT_EQ(steps.back(), 1);
  EXPECT_EQ(steps[steps.size() - 2], static_cast<int>(steps.size()) - 1);
}

}  // namespace train_disk_test
}  // namespace dflop
