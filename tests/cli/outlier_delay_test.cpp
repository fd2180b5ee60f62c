// All commands that draw batches group outliers in the same way, and a resumed run has the batches of one
// that never stopped.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "experiments/presets/presets.hpp"
#include "experiments/studies/data.hpp"
#include "experiments/training/job.hpp"
#include "tests/cli/run.hpp"
#include "traces/files/plan.hpp"
#include "traces/files/schedule.hpp"

namespace dflop::testing {
namespace outlier_delay_test {

using nlohmann::json;
using Ids = std::vector<std::vector<std::string>>;  // of each batch

constexpr int kIterations = 8;  // two windows of four
const std::string kData = "--data traces/datasets/vision_mix.csv ";
const std::string kBatches = fmt::format("--gbs 16 --iterations {} --seed 3 ", kIterations);

/// Makes plan.json with 4 microbatches and the dp ranks that the planner chooses.
struct ScheduleWithOutliers : ::testing::Test {
  Sandbox sandbox;
  Plan plan;

  ScheduleWithOutliers() {
    ok("plan --planner search --microbatches 4 --dp 2 --model tiny-vlm --cluster a100-80g:1 --out plan.json " +
       kData + kBatches);
    plan = parse_plan(read_all(sandbox.path("plan.json")), "plan.json");
  }

  RunResult ok(const std::string& arguments) {
    RunResult result = sandbox.run(arguments);
    EXPECT_EQ(result.exit_code, 0) << arguments << ": " << result.err;
    return result;
  }
  ScheduleFile schedule(const std::string& file) {
    return parse_schedule(read_all(sandbox.path(file)), file);
  }
  /// Schedules with the plan and returns the samples of each batch.
  std::vector<Batch> scheduled(const std::string& options) {
    ok("schedule --plan plan.json --scheduler lpt --out schedule.json " + kData + iterations() + options);
    std::vector<Batch> batches;
    for (const ScheduledIteration& iteration : schedule("schedule.json").iterations)
      batches.push_back(iteration.samples);
    return batches;
  }
  static std::string iterations() { return fmt::format("--iterations {} --seed 3 ", kIterations); }
};

Ids ids_of(const std::vector<Batch>& batches) {
  Ids ids;
  for (const Batch& batch : batches) {
    ids.emplace_back();
    for (const Sample& sample : batch) ids.back().push_back(sample.id);
  }
  return ids;
}

Ids sorted(Ids batches) {
  for (auto& batch : batches) std::sort(batch.begin(), batch.end());
  return batches;
}

/// Sends requests, one per line, and returns the results of the answers by id.
std::vector<json> served(const Sandbox& sandbox, const std::vector<json>& requests) {
  std::string lines;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    json request = requests[i];
    request["id"] = i;
    lines += request.dump() + "\n";
  }
  write_all(sandbox.path("requests"), lines);
  const RunResult result = sandbox.run("serve", "requests");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::vector<json> answers(requests.size());
  std::istringstream out(result.out);
  for (std::string line; std::getline(out, line);) {
    const json answer = json::parse(line);
    if (answer.contains("id")) answers.at(answer["id"].get<std::size_t>()) = answer;
  }
  return answers;
}

/// schedule, compare, training and sessions have the same batches, which differ from those without a delay.
TEST_F(ScheduleWithOutliers, AllConsumersHaveTheSameBatches) {
  const std::vector<Batch> plain = scheduled("");
  const std::vector<Batch> delayed = scheduled("--delay-outliers 4");
  ASSERT_NE(ids_of(delayed), ids_of(plain));

  ok("compare --systems dflop --model tiny-vlm --cluster a100-80g:1 --out compared --delay-outliers 4 "
     "--outlier-bins 4x2 " +
     kData + kBatches);
  std::vector<Batch> compared;
  for (const ScheduledIteration& iteration : schedule("compared/dflop.schedule.json").iterations)
    compared.push_back(iteration.samples);
  EXPECT_EQ(ids_of(compared), ids_of(delayed));

  PreprocessOptions options;
  const ModelSpec model = find_model("tiny-vlm");
  options.rule = model.preprocess;
  options.max_tokens = model.max_tokens;
  options.seed = 3;
  TrainJob job;
  job.plan = plan;
  job.plan.gbs = 16;
  job.target = std::make_shared<const Target>("tiny-vlm", "a100-80g:1");
  job.samples = std::make_shared<const std::vector<Sample>>(
      load_samples((sandbox.path("traces") / "datasets/vision_mix.csv").string(), options, false));
  job.seed = 3;
  job.delay = {4, 4, 2};
  std::vector<Batch> trained;
  BatchStream stream = job.batches();
  for (int k = 0; k < kIterations; ++k) trained.push_back(stream.next());
  EXPECT_EQ(ids_of(trained), ids_of(delayed));

  const json samples = json::parse(read_all(sandbox.path("schedule.json")))["samples"];
  std::map<std::string, json> by_id;
  for (const json& sample : samples) by_id[sample["id"]] = sample;
  const json text = json::parse(read_all(sandbox.path("plan.json")));
  std::vector<json> requests = {
      {{"method", "open"}, {"params", {{"plan", text}, {"method", "lpt"}, {"delay_outliers", 4}}}}};
  for (int k = 0; k < kIterations; ++k) {
    json batch = {{"samples", json::array()}, {"ends_window", k == kIterations - 1}};
    for (const Sample& sample : plain[static_cast<std::size_t>(k)])
      batch["samples"].push_back(by_id.at(sample.id));
    requests.push_back({{"method", "push"}, {"params", {{"session", 1}, {"batch", batch}}}});
  }
  for (int k = 0; k < kIterations; ++k)
    requests.push_back({{"method", "next"}, {"params", {{"session", 1}}}});
  const std::vector<json> answers = served(sandbox, requests);
  Ids given;
  for (std::size_t k = 1 + kIterations; k < answers.size(); ++k) {
    ASSERT_TRUE(answers[k].contains("result")) << answers[k];
    given.emplace_back();
    for (const json& at : answers[k]["result"]["pushed_at"])
      given.back().push_back(plain[at[0].get<std::size_t>()][at[1].get<std::size_t>()].id);
  }
  EXPECT_EQ(given, ids_of(delayed));
}

/// A session schedules an iteration as the command would.
TEST_F(ScheduleWithOutliers, ASessionSchedulesTheRegroupedBatches) {
  std::vector<json> requests = {
      {{"method", "open"},
       {"params", {{"bins", 4}, {"dp", 2}, {"method", "local-search"}, {"delay_outliers", 2}}}}};
  const std::vector<std::vector<double>> pushed = {{1, 9, 1, 1, 1, 1}, {1, 1, 9, 1, 1, 1}};
  for (const auto& costs : pushed)
    requests.push_back({{"method", "push"}, {"params", {{"session", 1}, {"batch", {{"llm", costs}}}}}});
  requests.push_back({{"method", "next"}, {"params", {{"session", 1}}}});
  requests.push_back({{"method", "next"}, {"params", {{"session", 1}}}});
  const std::vector<json> answers = served(sandbox, requests);
  EXPECT_EQ(answers[1]["result"]["iteration"], 0);
  EXPECT_EQ(answers[2]["result"]["iteration"], 1);
  // The mean bin is 28 / 8 = 3.5. Both 9s come into the first batch, one per bin; the second batch has six 1s
  // in four bins.
  EXPECT_EQ(answers[3]["result"]["value"], 9.0);
  EXPECT_EQ(answers[4]["result"]["value"], 2.0);
  const json first = json::parse("[[0,0],[0,2],[0,3],[0,4],[0,1],[1,2]]");
  EXPECT_EQ(answers[3]["result"]["pushed_at"], first);
}

TEST_F(ScheduleWithOutliers, SessionsReportTheNeedsOfTheirWindows) {
  const json push = {{"method", "push"}, {"params", {{"session", 1}, {"batch", {{"llm", {1, 2, 3}}}}}}};
  const json longer = {{"method", "push"}, {"params", {{"session", 1}, {"batch", {{"llm", {1, 2, 3, 4}}}}}}};
  const json next = {{"method", "next"}, {"params", {{"session", 1}}}};
  const std::vector<json> answers = served(
      sandbox, {{{"method", "open"}, {"params", {{"bins", 2}, {"delay_outliers", 3}}}}, push, next, longer});
  EXPECT_NE(answers[2].dump().find("expected a window of 3 batches, or a shorter one with 'ends_window', "
                                   "to be pushed first, found 1"),
            std::string::npos)
      << answers[2];
  EXPECT_NE(answers[3].dump().find("expected 3, as in the previous batch of the same window, found 4"),
            std::string::npos)
      << answers[3];
}

/// A run reports how far samples have moved, on standard error and in its output files.
TEST_F(ScheduleWithOutliers, RunsReportMovedSamples) {
  const Ids plain = sorted(ids_of(scheduled("")));
  const RunResult result =
      ok("schedule --plan plan.json --scheduler lpt --out schedule.json --delay-outliers 4 " + kData +
         iterations());
  const ScheduleFile file = schedule("schedule.json");
  std::int64_t moved = 0;
  for (std::size_t k = 0; k < file.iterations.size(); ++k) {
    for (const Sample& sample : file.iterations[k].samples)
      moved += std::ranges::binary_search(plain[k], sample.id) ? 0 : 1;
  }
  ASSERT_GT(moved, 0);
  const std::string line = fmt::format(
      "outliers are delayed in windows of 4 batches of 4x2 bins; {} of {} samples have moved, by at most ",
      moved, 16 * kIterations);
  EXPECT_NE(result.err.find(line), std::string::npos) << result.err;
  ASSERT_TRUE(file.made_by && file.made_by->data);
  EXPECT_EQ(file.made_by->data->delay.find(line), 0u) << file.made_by->data->delay;
  // This does not contradict the plan's data, which were drawn in the original order.
  ok("simulate --plan plan.json --schedule schedule.json");
}

TEST_F(ScheduleWithOutliers, OptionsThatDoNotFitAreRejected) {
  const auto refused = [&](const std::string& arguments, const std::string& message) {
    const RunResult result = sandbox.run(arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments;
    EXPECT_NE(result.err.find(message), std::string::npos) << arguments << ": " << result.err;
  };
  const std::string of_plan = "schedule --plan plan.json " + kData;
  refused(of_plan + "--delay-outliers -1", "option '--delay-outliers': expected a whole number from 0");
  refused(of_plan + "--outlier-bins 4x2", "needs '--delay-outliers K' with K of at least 1");
  for (const char* bins : {"4", "4x", "x2", "0x2", "4x2x", "17x1", "4x5"}) {
    refused(of_plan + "--delay-outliers 2 --outlier-bins " + bins,
            "option '--outlier-bins': expected MxD, such as 16x4");
  }
  refused("compare --model tiny-vlm --cluster a100-80g:1 --delay-outliers 2 " + kData + kBatches,
          "needs '--outlier-bins MxD'");
}

struct TrainWithOutliers : ScheduleWithOutliers {
  std::vector<double> losses(const std::string& options) {
    const RunResult result =
        ok("train --format json --data small.csv --gbs 4 --outlier-bins 2x1 --delay-outliers 4 " + options);
    std::vector<double> all;
    for (const json& step : testing::rows_of(result.out)) all.push_back(step["loss"]);
    return all;
  }
};

/// In the middle of a window, training resumes with the rest of the window and not with other windows.
TEST_F(TrainWithOutliers, ResumesWithTheBatchesOfTheRun) {
  write_all(sandbox.path("small.csv"), image_records());
  const std::vector<double> whole = losses("--steps 7");
  losses("--steps 3 --checkpoint run");
  std::vector<double> rest = losses("--steps 6 --checkpoint run --resume");
  const std::vector<double> last = losses("--steps 7 --checkpoint run --resume");
  rest.insert(rest.end(), last.begin(), last.end());
  EXPECT_EQ(rest, std::vector<double>(whole.begin() + 3, whole.end()));
  const RunResult other = sandbox.run("train --data small.csv --gbs 4 --steps 8 --checkpoint run --resume");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.err.find("outliers are delayed in windows of 4 batches of 2x1 bins'"), std::string::npos)
      << other.err;
}

}  // namespace outlier_delay_test
}  // namespace dflop::testing
