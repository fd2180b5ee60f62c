// `dflop correction`, as a user types it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "costmodel/correction/correction.hpp"
#include "experiments/checks/paper/correction_report.hpp"
#include "tests/cli/run.hpp"
#include "traces/files/correction.hpp"

namespace dflop {
namespace correction_test {

using nlohmann::json;
using testing::read_all;
using testing::read_result;
using testing::RunResult;
using testing::Sandbox;
using testing::write_all;

/// Eight bins of 16 samples: few enough to be fast, enough to balance.
constexpr const char* kPlan = R"({"schema": "dflop.plan", "version": 1, "planner": "user",
  "model": "llava-ov-llama3-8b", "cluster": "a100-80g-vtrain:1", "gbs": 128, "layout": "disaggregated",
  "encoder": {"tp": 1, "pp": 1, "dp": 4, "layers": [27]}, "llm": {"tp": 2, "pp": 1, "dp": 2, "layers": [32]},
  "microbatches": 8, "schedule": "1f1b", "recomputation": "full", "zero1": true, "sequence_parallel": true}
)";

/// Uses only the image records, whose shapes are given, so there is no note.
const std::string kStudy =
    "correction --plan plan.json --data traces/datasets/vision_mix.csv --modalities image,multi_image ";

struct CorrectionCommand : ::testing::Test {
  Sandbox box;

  CorrectionCommand() { write_all(box.path("plan.json"), kPlan); }

  json cells(const std::string& options) {
    const RunResult result = box.run(kStudy + "--format json " + options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out)["cells"];
  }

  void refuses(const std::string& options, const std::string& words) {
    const RunResult result = box.run(kStudy + options);
    EXPECT_EQ(result.exit_code, 2) << options;
    EXPECT_EQ(result.out, "") << options;
    EXPECT_NE(result.err.find(words), std::string::npos) << result.err;
  }
};

TEST_F(CorrectionCommand, CorrectedSchedulesAreBetterOnSlowShapes) {
  const json rows = cells("--fractions 0.05 --latencies 0.125,3 --iterations 40");
  ASSERT_EQ(rows.size(), 2U);
  for (const json& row : rows) {
    EXPECT_NEAR(row["slow_fraction"].get<double>(), 0.05, 0.0025);
    // Tracking takes 4 % of throughput: net = (1 + gain) x 0.96 - 1, exactly.
    EXPECT_NEAR(row["on_net_gain"].get<double>(), (1 + row["on_gain"].get<double>()) * 0.96 - 1, 1e-12);
  }
  // Six slow samples of 128, each as long as three mean microbatches, in 16 bins: perfect knowledge of them
  // gains much, and the learned correction comes close.
  EXPECT_GT(rows[1]["perfect_gain"].get<double>(), 0.05);
  EXPECT_GT(rows[1]["on_gain"].get<double>(), 0.7 * rows[1]["perfect_gain"].get<double>());
  EXPECT_EQ(rows[1]["published_state"], "on");
  // An eighth of that latency is not worth 4 %: both stop after the first window.
  EXPECT_LT(rows[0]["on_net_gain"].get<double>(), 0);
  EXPECT_EQ(rows[0]["published_state"], "off");
  // Kept corrections cost only probes: better than always on and better than none.
  EXPECT_EQ(rows[1]["keep_state"], "off");
  EXPECT_GT(rows[1]["keep_gain"].get<double>(), 0.02);
}

TEST_F(CorrectionCommand, CorrectedMakespansAreBetterOnSlowShapes) {
  // As above, for a search that counts slow samples in the makespan itself.
  const json row =
      cells("--scheduler makespan --steps 500 --fractions 0.05 --latencies 3 --iterations 24")[0];
  EXPECT_GT(row["perfect_gain"].get<double>(), 0.05);
  EXPECT_GT(row["on_gain"].get<double>(), 0.7 * row["perfect_gain"].get<double>());
}

TEST_F(CorrectionCommand, WithoutSlowShapesThereIsNothingToGain) {
  // Slow shapes appear in the last of 20 iterations, and there is no noise. Until then all runs have the same
  // schedules, and tracking costs exactly the requested share.
  const json row = cells(
      "--fractions 0.05 --latencies 1 --iterations 20 --appear 19 --jitter 0 --tracking-cost 0.1 "
      "--window 4 --measure 2")[0];
  EXPECT_NEAR(row["tracking_cost"].get<double>(), 0.1, 1e-3);
  EXPECT_EQ(row["published_story"], "on 0, off 4, on 6, off 12");
  EXPECT_EQ(row["published_since"], 12);
  EXPECT_EQ(row["keep_story"], "on 0, off 4, on 6, off 12");
}

TEST_F(CorrectionCommand, SwitchesOnForSlowShapesAndOffAfterThem) {
  const json row = cells(
      "--fractions 0.05 --latencies 1 --iterations 70 --appear 24 --vanish 46 --window 4 --measure 2")[0];
  // Off before 24, on soon after, off again at the end.
  const std::string story = row["published_story"];
  EXPECT_EQ(story.rfind("on 0, off 4, on 6, off 12, on 2", 0), 0U) << story;
  EXPECT_EQ(row["published_state"], "off") << story;
  EXPECT_GT(row["published_since"].get<int>(), 46) << story;
  EXPECT_EQ(row["keep_state"], "off") << row["keep_story"];
}

TEST_F(CorrectionCommand, SameSeedSameBytes) {
  const std::string options =
      kStudy + "--fractions 0.01,0.05 --latencies 0.5 --iterations 14 --window 2 --measure 1 --html h.html";
  const RunResult a = box.run(options);
  const std::string page = read_result(box.path("h.html"));
  const std::string whole = read_all(box.path("h.html"));
  const RunResult b = box.run(options);
  EXPECT_EQ(a.exit_code, 0) << a.err;
  EXPECT_EQ(a.out, b.out);
  EXPECT_EQ(page, read_result(box.path("h.html")));
  EXPECT_NE(page.find("<svg"), std::string::npos);
  EXPECT_NE(whole.find("dflop correction --"), std::string::npos);
  EXPECT_NE(a.out, box.run(options + " --seed 2").out);
}

TEST_F(CorrectionCommand, WritesTheLearnedValues) {
  const RunResult result =
      box.run(kStudy + "--fractions 0.05 --latencies 1 --iterations 8 --out learned.json --format csv");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out.rfind("slow_fraction,latency,off_s,", 0), 0U);
  const CorrectionFile file = parse_correction(read_all(box.path("learned.json")), "learned.json");
  EXPECT_EQ(file.model, "llava-ov-llama3-8b");
  EXPECT_EQ(file.cluster, "a100-80g-vtrain:1");
  ASSERT_EQ(file.fits.size(), 4U);  // encoder and LLM, forward and backward
  for (const CorrectionFit& fit : file.fits) EXPECT_EQ(fit.iterations, 8);
  const Correction correction(file.fits);
  double largest = 0;
  for (const ShapeBucket& bucket : file.fits.back().buckets) {
    largest = std::max(largest, correction.penalty(file.fits.back().kind, file.fits.back().op, bucket));
  }
  EXPECT_GT(largest, 0.3);  // of one whole unit
}

TEST_F(CorrectionCommand, SchedulesUseTheLearnedValues) {
  ASSERT_EQ(
      box.run(kStudy + "--fractions 0.05 --latencies 3 --iterations 8 --out learned.json --seed 3").exit_code,
      0);
  const std::string schedule =
      "schedule --plan plan.json --data traces/datasets/vision_mix.csv --modalities image,multi_image "
      "--iterations 2 --steps 200 --seed 3 --format json ";
  for (const std::string scheduler : {"lpt", "makespan"}) {
    const RunResult usual = box.run(schedule + "--scheduler " + scheduler);
    const RunResult corrected = box.run(schedule + "--correction learned.json --scheduler " + scheduler);
    ASSERT_EQ(corrected.exit_code, 0) << corrected.err;
    // Six slow samples of 128, each as long as three mean microbatches of eight: a single one lengthens the
    // largest of 16 bins by more than half.
    for (std::size_t k = 0; k < 2; ++k) {
      EXPECT_GT(testing::rows_of(corrected.out)[k]["c_max_s"].get<double>(),
                1.1 * testing::rows_of(usual.out)[k]["c_max_s"].get<double>());
    }
  }
  std::string other = read_all(box.path("learned.json"));
  const std::string cluster = "a100-80g-vtrain:1";
  other.replace(other.find(cluster), cluster.size(), "a100-80g-vtrain:2");
  write_all(box.path("other.json"), other);
  const RunResult refused = box.run(schedule + "--correction other.json");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("other.json"), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("cluster: expected the plan's 'a100-80g-vtrain:1', found 'a100-80g-vtrain:2'"),
            std::string::npos)
      << refused.err;
}

TEST_F(CorrectionCommand, ACostThatWasNeverMeasuredIsMissing) {
  // The cost is known after the first window and twice the measuring iterations: 4 + 2 x 2.
  const std::string options = "--fractions 0.05 --latencies 1 --window 4 --measure 2 ";
  EXPECT_TRUE(cells(options + "--iterations 7")[0]["tracking_cost"].is_null());
  EXPECT_TRUE(cells(options + "--iterations 8")[0]["tracking_cost"].is_number());
}

TEST_F(CorrectionCommand, FewNewSamplesAreNoDrift) {
  // Every 60th of the 12,800 planned records: 213, far fewer than 8 global batches of 128. If they were
  // repeated, they would count as 1024 independent samples, and the range would be less than half as wide.
  std::istringstream lines(read_all(box.path("traces/datasets/vision_mix.csv")));
  std::string few;
  int records = 0;
  for (std::string line; std::getline(lines, line);) {
    const bool chosen = line.find("image,") != std::string::npos && records++ % 60 == 49;
    if (few.empty() || chosen) few += line + '\n';
  }
  write_all(box.path("few.csv"), few);
  const std::string options = "--fractions 0.05 --latencies 1 --iterations 2 --new-data few.csv ";
  const json advice = json::parse(box.run(kStudy + options + "--format json").out);
  EXPECT_EQ(advice["replan"], false) << advice["drift"].dump(1);
  // CSV has only one table, so the verdict is a note.
  const RunResult csv = box.run(kStudy + options + "--format csv");
  EXPECT_EQ(csv.out.rfind("slow_fraction,", 0), 0U);
  EXPECT_NE(csv.err.find("new data: the plan still fits"), std::string::npos) << csv.err;
}

TEST(DriftSentence, ATextOnlyPlanHasNoPercentOfEncoderWork) {
  DriftAdvice advice;
  advice.measures = {{"encoder_flop", 0, 3e12, 0, 0}, {"llm_flop", 2e12, 3e12, 1e12, 2.5e12}};
  advice.replan = true;
  EXPECT_EQ(drift_sentence(advice), "re-plan: encoder_flop from none, llm_flop +50 %");
}

TEST_F(CorrectionCommand, SaysWhetherToReplan) {
  const std::string options = "--fractions 0.05 --latencies 1 --iterations 2 --new-data ";
  const RunResult same = box.run(kStudy + options + "traces/datasets/vision_mix.csv");
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_NE(same.out.find("the plan still fits"), std::string::npos) << same.out;
  EXPECT_EQ(same.out.find("re-plan"), std::string::npos) << same.out;
  // Only the multi-image records of the same file, which are larger, and none of the single images.
  std::istringstream lines(read_all(box.path("traces/datasets/vision_mix.csv")));
  std::string multi;
  for (std::string line; std::getline(lines, line);) {
    if (multi.empty() || line.find(",multi_image,") != std::string::npos) multi += line + '\n';
  }
  write_all(box.path("multi.csv"), multi);
  const json drifted = json::parse(box.run(kStudy + options + "multi.csv --format json").out);
  EXPECT_EQ(drifted["replan"], true);
  ASSERT_EQ(drifted["drift"].size(), 4U);
  EXPECT_EQ(drifted["drift"][3]["measure"], "shape_distance");
  EXPECT_GT(drifted["drift"][3]["now"], drifted["drift"][3]["most"]);
}

TEST_F(CorrectionCommand, RejectsBadOptions) {
  refuses("--fractions 0.1,",
          "option '--fractions': expected a comma-separated list of numbers above 0 and at most 1");
  refuses("--fractions 1.5", "found '1.5'");
  refuses("--latencies -1", "option '--latencies'");
  refuses("--latencies nan", "option '--latencies'");
  refuses("--module audio", "option '--module': expected llm or encoder, found 'audio'");
  refuses("--iterations 1", "option '--iterations': expected a whole number from 2");
  refuses("--iterations 8 --appear 8", "option '--appear': expected a whole number from 0 to 7");
  refuses("--iterations 8 --appear 4 --vanish 4", "option '--vanish': expected a whole number from 5 to 7");
  refuses("--tracking-cost 1", "option '--tracking-cost'");
  refuses("--window 0", "option '--window'");
  refuses("--out learned.json",
          "option '--out': expected one fraction and one latency (--fractions, --latencies), found 15 "
          "pairs");
  refuses("--scheduler best", "best");
  std::string large = kPlan;
  large.replace(large.find("\"gbs\": 128"), 10, "\"gbs\": 512");
  write_all(box.path("plan.json"), large);
  refuses("--iterations 2 --window 7813 --new-data traces/datasets/vision_mix.csv",  // x 512 = 4,000,256
          "at most 7812 global batches of 512 samples with --new-data (4000000 samples in all), found "
          "7813");
  EXPECT_FALSE(box.has("learned.json"));
}

}  // namespace correction_test
}  // namespace dflop
