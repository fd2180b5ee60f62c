// dflop import names the ranks for which others wait, says what would mend them, and which ranks are missing.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "tests/cli/run.hpp"
#include "tests/traces/kineto_fixtures.hpp"

namespace dflop {
namespace stragglers_test {

using nlohmann::json;
using testing::expect_error;
using testing::RunResult;
using testing::Sandbox;

/// A MadeRun is a run of data-parallel ranks, from step 1 on. In a step a rank waits for its data, computes
/// 50 ms, meets the others in an all-reduce of 5 ms, which begins when all are there, and computes 4 ms in
/// the optimizer; its host is 2 ms ahead.
struct MadeRun {
  int ranks = 4;
  int steps = 4;
  int world_size = 0;                                                      ///< 0: ranks
  std::function<double(int, int)> factor = [](int, int) { return 1.0; };   ///< of what a rank computes
  std::function<double(int, int)> data_ms = [](int, int) { return 0.0; };  ///< that it waits for data
  std::function<bool(int)> has_kernels = [](int) { return true; };
  std::function<double(int, int)> clock_ms = [](int, int) { return 0.0; };  ///< ahead in a step
  bool says_groups = true;  ///< whether collectives have a group and a sequence number

  /// Writes the files r0.json, ... and returns their names.
  std::string write(const Sandbox& sandbox) const {
    std::vector<KinetoText> texts;
    for (int r = 0; r < ranks; ++r) {
      texts.emplace_back(fmt::format(R"("distributedInfo": {{"rank": {}, "world_size": {}}},)", r,
                                     world_size > 0 ? world_size : ranks));
    }
    std::vector<double> now(ranks, 10);
    for (int s = 0; s < steps; ++s) write_step(s, texts, now);
    std::string files;
    for (int r = 0; r < ranks; ++r) {
      testing::write_all(sandbox.path(fmt::format("r{}.json", r)), texts[r].text());
      files += fmt::format(" r{}.json", r);
    }
    return files;
  }

 private:
  static std::string us(double ms) { return fmt::format("{:.3f}", 1000 * ms); }

  std::string args_of(int step) const {
    if (!says_groups) return "";
    std::vector<int> all(ranks);
    std::iota(all.begin(), all.end(), 0);
    return fmt::format(R"(, "Collective name": "allreduce", "dtype": "Float", "In msg nelems": 1000, )"
                       R"("Out msg nelems": 1000, "Group size": {}, "Process Group Name": "0", )"
                       R"("Process Group Ranks": "[{}]", "Seq": {})",
                       ranks, fmt::join(all, ", "), step);
  }

  void write_step(int s, std::vector<KinetoText>& texts, std::vector<double>& now) const {
    std::vector<double> begin(ranks);
    std::vector<double> ready(ranks);
    for (int r = 0; r < ranks; ++r) {
      begin[r] = now[r] + data_ms(r, s);
      ready[r] = begin[r] + 50 * factor(r, s);
    }
    const double reduced = *std::max_element(ready.begin(), ready.end()) + 5;
    for (int r = 0; r < ranks; ++r) {
      const double end = reduced + 4 * factor(r, s);
      const double host = now[r] - 2 + clock_ms(r, s);
      KinetoText& text = texts[r];
      text.x("user_annotation", fmt::format("ProfilerStep#{}", s + 1), us(host), us(end - now[r] - 0.001), 1);
      for (int k = 0; k < 3; ++k) text.launch(3 * s + k, us(host + 0.01 * (k + 1)));
      text.x("user_annotation", "Optimizer.step#AdamW.step", us(host + 0.029), "5", 1);
      if (has_kernels(r)) {
        const auto at = [&](double ms) { return us(ms + clock_ms(r, s)); };
        text.kernel(3 * s, "gemm", at(begin[r]), us(ready[r] - begin[r]));
        text.kernel(3 * s + 1, "ncclDevKernel_AllReduce_x", at(ready[r]), us(reduced - ready[r]), 20,
                    args_of(s));
        text.kernel(3 * s + 2, "adamw", at(reduced), us(end - reduced));
      }
      now[r] = end;
    }
  }
};

/// Returns the findings' texts, as "kind: place: text".
std::vector<std::string> findings(const RunResult& result) {
  std::vector<std::string> all;
  const json out = json::parse(result.out, nullptr, false);
  for (const json& f : out.value("examples", json::array())) {
    all.push_back(f["finding"].get<std::string>() + ": " + f["place"].get<std::string>() + ": " +
                  f["text"].get<std::string>());
  }
  return all;
}

/// Returns the last row's makespans of a replay of run.json, in milliseconds: mean of all steps.
double replayed_ms(const Sandbox& sandbox, const std::string& options) {
  const RunResult result = sandbox.run("replay --trace run.json --iteration all --format json " + options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return 1e3 * json::parse(result.out)["runs"].back()["makespan_s"].get<double>();
}

// Ranks 2 and 3 take 1.3 times as long: of two steps the fast ranks wait 15 ms of 74 (50 + 15 + 5 + 4) in the
// first, and in the second, which they begin 1.2 earlier, 16.2 of 75.2. That is 31.2 of 149.2, and (50 + 4) /
// (65 + 5.2) mends both: 50 + 5 + 4 = 59 ms.
TEST(Stragglers, AllRanksThatAreWaitedForAreNamed) {
  const Sandbox sandbox;
  MadeRun run;
  run.steps = 2;
  run.factor = [](int r, int) { return r >= 2 ? 1.3 : 1.0; };
  const std::string import = "import --kineto" + run.write(sandbox) + " --format json --fail-on straggler";
  const RunResult result = sandbox.run(import + " --out run.json");
  EXPECT_EQ(result.exit_code, 3);
  const std::string rest =
      " at most 20.9 % of a step; 'replay --slow rank=2:0.769 --slow rank=3:0.769' mends all";
  EXPECT_EQ(
      findings(result),
      (std::vector<std::string>{
          "straggler: r2.json: rank 2 computes 1.30 x the median; the other 2 ranks wait 20.9 % of their "
          "steps for it and rank 3: fixing this rank alone saves at most 0.0 %, fixing all 2" +
              rest,
          "straggler: r3.json: rank 3 computes 1.30 x the median; the other 2 ranks wait 20.9 % of their "
          "steps for it and rank 2: fixing this rank alone saves nothing, fixing all 2" +
              rest}));
  EXPECT_NEAR(replayed_ms(sandbox, ""), 75.2, 1e-3);
  EXPECT_NEAR(replayed_ms(sandbox, "--slow rank=2:0.769231 --slow rank=3:0.769231"), 59, 1e-3);
  EXPECT_NEAR(replayed_ms(sandbox, "--slow rank=2:0.769231"), 75.2, 1e-3);
}

// Of 8 ranks two are slow, one by 1.30 and one by 1.28, which waits 1 ms for it.
TEST(Stragglers, ASlowRankIsNotHiddenByASlowerOne) {
  const Sandbox sandbox;
  MadeRun run;
  run.ranks = 8;
  run.factor = [](int r, int) { return r == 2 ? 1.3 : r == 5 ? 1.28 : 1.0; };
  const auto found = findings(sandbox.run("import --kineto" + run.write(sandbox) + " --format json"));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_NE(found[0].find("r2.json: rank 2 computes 1.30 x"), std::string::npos) << found[0];
  EXPECT_NE(found[0].find("the other 6 ranks wait"), std::string::npos) << found[0];
  EXPECT_NE(found[1].find("r5.json: rank 5 computes 1.28 x"), std::string::npos) << found[1];
}

// In each step another rank takes 1.5 times as long, so that the others wait 25 ms and more of 84.
TEST(Stragglers, RanksThatAreSlowInTurnsAreTold) {
  const Sandbox sandbox;
  MadeRun run;
  run.factor = [](int r, int s) { return r == s ? 1.5 : 1.0; };
  const RunResult result =
      sandbox.run("import --kineto" + run.write(sandbox) + " --format json --fail-on waiting");
  EXPECT_EQ(result.exit_code, 3);
  const auto found = findings(result);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].find("waiting: r0.json and 3 more: the ranks wait 2"), std::string::npos) << found[0];
  EXPECT_NE(
      found[0].find("% of their steps for each other, and no single rank is behind it: they wait for rank 0 "
                    "in step 1, rank 1 in step 2, rank 2 in step 3, rank 3 in step 4"),
      std::string::npos)
      << found[0];
}

// Rank 3 waits 15 ms for its data before each step, which the others wait for then: 15 + 50 + 5 + 4 = 74 ms,
// the first step and the last included. (50 + 4) / (15 + 50 + 4) = 0.783 of it makes 50.87 of 65 ms.
TEST(Stragglers, ALateRankIsMendedByTheFactorThatIsNamed) {
  const Sandbox sandbox;
  MadeRun run;
  run.data_ms = [](int r, int) { return r == 3 ? 15.0 : 0.0; };
  const RunResult result =
      sandbox.run("import --kineto" + run.write(sandbox) + " --out run.json --format json");
  const auto found = findings(result);
  ASSERT_EQ(found.size(), 1u) << result.out;
  EXPECT_NE(found[0].find("rank 3 computes 1.00 x the median, and its device idles"), std::string::npos);
  EXPECT_NE(found[0].find("; 'replay --slow rank=3:0.783' mends it"), std::string::npos) << found[0];
  const json steps = json::parse(result.out)["pipeline"];
  ASSERT_EQ(steps.size(), 4u);
  for (const json& step : steps) {
    EXPECT_NEAR(step["duration_s"].get<double>(), 74e-3, 1e-9);
    EXPECT_NEAR(step["replayed_s"].get<double>(), 74e-3, 1e-9);
  }
  EXPECT_NEAR(replayed_ms(sandbox, "--slow rank=3:0.783"), 65 * 0.783 + 5 + 4, 1e-3);
}

TEST(Stragglers, RanksWithoutATraceAreFound) {
  const Sandbox sandbox;
  MadeRun run;
  run.world_size = 8;
  const std::string files = run.write(sandbox);
  const RunResult result = sandbox.run("import --kineto" + files + " --format json --fail-on missing_rank");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(findings(result), std::vector<std::string>{
                                  "missing_rank: r0.json: the run has 8 ranks by distributedInfo.world_size, "
                                  "found traces of 4; missing 4, 5, 6, 7"});
  // Without that, process groups say it.
  EXPECT_EQ(
      findings(sandbox.run("import --kineto r0.json r1.json r3.json --format json")).back(),
      "missing_rank: r0.json: the run has 8 ranks by distributedInfo.world_size, found traces of 3; missing "
      "2, 4, 5, 6, 7");
  run.world_size = 2;
  run.write(sandbox);
  EXPECT_NE(sandbox.run("import --kineto r0.json r2.json r3.json")
                .out.find("the run has 4 ranks by the size of a process group, found traces of 3; missing 1"),
            std::string::npos);
  // Who gives one trace alone knows.
  EXPECT_EQ(sandbox.run("import --kineto r0.json --fail-on missing_rank").exit_code, 0);
}

TEST(Stragglers, ARankWithoutKernelsIsNamedWithOutAndWithout) {
  const Sandbox sandbox;
  MadeRun run;
  run.has_kernels = [](int r) { return r != 1; };
  run.factor = [](int r, int) { return r == 2 ? 1.3 : 1.0; };
  const std::string import = "import --kineto" + run.write(sandbox) + " --format json";
  for (const std::string out : {"", " --out run.json"}) {
    const RunResult gate = sandbox.run(import + out + " --fail-on no_device_activity,straggler");
    EXPECT_EQ(gate.exit_code, 3) << gate.err;
    const auto found = findings(gate);
    const auto has = [&](const std::string& begin) {
      return std::ranges::any_of(found, [&](const std::string& text) { return text.starts_with(begin); });
    };
    EXPECT_TRUE(has("no_device_activity: r1.json: ")) << gate.out;
    EXPECT_TRUE(has("straggler: r2.json: rank 2 computes 1.30 x")) << gate.out;
    EXPECT_EQ(gate.err.find("r0.json"), std::string::npos) << gate.err;
  }
  // Without a gate it is an error, of the right file, that what was asked for could not be made.
  expect_error(sandbox.run(import + " --out run.json"),
               {"r1.json", "found a rank without kernels", "without '--out'"});
  EXPECT_FALSE(sandbox.has("run.json"));
}

// Hosts whose clocks are 3 ms and a second apart are aligned by what they share. Without sequence numbers
// collectives are joined by time, which takes clocks that agree.
TEST(Stragglers, ClocksThatCouldBeAlignedAreNoFinding) {
  const Sandbox sandbox;
  MadeRun run;
  run.clock_ms = [](int r, int) { return r == 1 ? 3.0 : r == 2 ? 1000.0 : 0.0; };
  const std::string import = "import --kineto" + run.write(sandbox) + " --format json --fail-on any";
  const RunResult apart = sandbox.run(import);
  EXPECT_EQ(apart.exit_code, 0) << apart.err;
  EXPECT_NEAR(json::parse(apart.out)["traces"][2]["clock_offset_s"].get<double>(), 1, 1e-9);
  run.says_groups = false;
  run.clock_ms = [](int r, int) { return r == 1 ? 0.1 : 0.0; };
  run.write(sandbox);
  const RunResult by_time = sandbox.run(import);
  EXPECT_EQ(by_time.exit_code, 3);
  EXPECT_NE(by_time.err.find("of kind unaligned_clocks"), std::string::npos) << by_time.err;
  // A clock that runs 0.6 ms away in each step has ends 0, 0.6, 1.2 and 1.8 late: no one offset is within
  // 0.5.
  run.says_groups = true;
  run.clock_ms = [](int r, int s) { return r == 1 ? 0.6 * s : 0.0; };
  run.write(sandbox);
  EXPECT_NE(sandbox.run(import).err.find("1 of kind unaligned_clocks"), std::string::npos);
}

}  // namespace stragglers_test
}  // namespace dflop
