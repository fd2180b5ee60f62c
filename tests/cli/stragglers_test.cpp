// dflop import names the ranks that others wait for, how to mend them, and which ranks are missing.
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
using testing::replayed_ms;
using testing::RunResult;
using testing::Sandbox;

/// A MadeRun is a run of data-parallel ranks, starting with step 1. In a step a rank waits for its data,
/// computes 50 ms, meets the others in an all-reduce of 5 ms, which begins when all are there, and computes 4
/// ms in the optimizer. Its host is 2 ms ahead. With all-gathers, as in FSDP, it splits the 50 ms into one
/// piece per all-gather and waits before each piece for its all-gather of 2 ms, which begins when all are
/// there.
struct MadeRun {
  int ranks = 4;
  int steps = 4;
  int gathers = 0;
  int world_size = 0;                                                      ///< 0: ranks; -1: missing
  std::function<double(int, int)> factor = [](int, int) { return 1.0; };   ///< of a rank's compute time
  std::function<double(int, int)> data_ms = [](int, int) { return 0.0; };  ///< wait for data
  std::function<bool(int)> has_kernels = [](int) { return true; };
  std::function<double(int, int)> clock_ms = [](int, int) { return 0.0; };  ///< clock lead in a step
  bool says_groups = true;  ///< whether collectives have a group and a sequence number

  /// Writes the files r0.json, ... and returns their names.
  std::string write(const Sandbox& sandbox) const {
    std::vector<KinetoText> texts;
    for (int r = 0; r < ranks; ++r) {
      const std::string size = fmt::format(R"(, "world_size": {})", world_size > 0 ? world_size : ranks);
      texts.emplace_back(
          fmt::format(R"("distributedInfo": {{"rank": {}{}}},)", r, world_size < 0 ? "" : size));
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

  std::string args_of(const std::string& name, int sequence) const {
    if (!says_groups) return "";
    std::vector<int> all(ranks);
    std::iota(all.begin(), all.end(), 0);
    return fmt::format(R"(, "Collective name": "{}", "dtype": "Float", "In msg nelems": 1000, )"
                       R"("Out msg nelems": 1000, "Group size": {}, "Process Group Name": "0", )"
                       R"("Process Group Ranks": "[{}]", "Seq": {})",
                       name, ranks, fmt::join(all, ", "), sequence);
  }

  void write_step(int s, std::vector<KinetoText>& texts, std::vector<double>& now) const {
    std::vector<double> at(ranks);
    std::vector<int> launches(ranks, 0);
    const auto host = [&](int r) { return now[r] - 2 + clock_ms(r, s); };
    const auto kernel = [&](int r, const std::string& name, double until, const std::string& args = "") {
      if (!has_kernels(r)) return;
      const int correlation = 1000 * s + ++launches[r];
      texts[r].launch(correlation, us(host(r) + 0.01 * launches[r]));
      texts[r].kernel(correlation, name, us(at[r] + clock_ms(r, s)), us(until - at[r]), args.empty() ? 7 : 20,
                      args);
    };
    const auto compute = [&](int r, const std::string& name, double ms) {
      kernel(r, name, at[r] + ms * factor(r, s));
      at[r] += ms * factor(r, s);
    };
    int sequence = s * (gathers + 1);
    const auto meet = [&](const std::string& name, const std::string& nccl, double ms) {
      const double end = *std::max_element(at.begin(), at.end()) + ms;
      for (int r = 0; r < ranks; ++r) kernel(r, nccl, end, args_of(name, sequence));
      at.assign(ranks, end);
      ++sequence;
    };
    for (int r = 0; r < ranks; ++r) at[r] = now[r] + data_ms(r, s);
    for (int g = 0; g < gathers; ++g) {
      meet("_allgather_base", "ncclDevKernel_AllGather_x", 2);
      for (int r = 0; r < ranks; ++r) compute(r, "gemm", 50.0 / gathers);
    }
    for (int r = 0; r < ranks && gathers == 0; ++r) compute(r, "gemm", 50);
    meet("allreduce", "ncclDevKernel_AllReduce_x", 5);
    for (int r = 0; r < ranks; ++r) {
      texts[r].x("user_annotation", "Optimizer.step#AdamW.step", us(host(r) + 0.01 * launches[r] + 0.009),
                 "5", 1);
      compute(r, "adamw", 4);
      texts[r].x("user_annotation", fmt::format("ProfilerStep#{}", s + 1), us(host(r)),
                 us(at[r] - now[r] - 0.001), 1);
    }
    now = at;
  }
};

/// Returns the findings as "kind: place: text".
std::vector<std::string> findings(const RunResult& result) {
  std::vector<std::string> all;
  const json out = json::parse(result.out, nullptr, false);
  for (const json& f : out.value("examples", json::array())) {
    all.push_back(f["finding"].get<std::string>() + ": " + f["place"].get<std::string>() + ": " +
                  f["text"].get<std::string>());
  }
  return all;
}

// Ranks 2 and 3 take 1.3 times as long. Of two steps, the fast ranks wait 15 ms of 74 (50 + 15 + 5 + 4) in
// the first and 16.2 of 75.2 in the second, which they begin 1.2 earlier. That is 31.2 of 149.2. If the two
// are as fast as the others, a step takes 50 + 5 + 4 = 59 ms.
TEST(Stragglers, AllRanksThatOthersWaitForAreNamed) {
  const Sandbox sandbox;
  MadeRun run;
  run.steps = 2;
  run.factor = [](int r, int) { return r >= 2 ? 1.3 : 1.0; };
  const std::string import = "import --kineto" + run.write(sandbox) + " --format json --fail-on straggler";
  const RunResult result = sandbox.run(import + " --out run.json");
  EXPECT_EQ(result.exit_code, 3);
  const std::string all = " saves 0.0 % of a step, '--as-others 2,3' 21.5 %";  // 16.2 of 75.2
  EXPECT_EQ(
      findings(result),
      (std::vector<std::string>{
          "straggler: r2.json: rank 2 computes 1.30 x the median; the other 2 ranks wait 20.9 % of their "
          "steps for it and rank 3; 'replay --as-others 2'" +
              all,
          "straggler: r3.json: rank 3 computes 1.30 x the median; the other 2 ranks wait 20.9 % of their "
          "steps for it and rank 2; 'replay --as-others 3'" +
              all}));
  EXPECT_NEAR(replayed_ms(sandbox, "").back(), 75.2, 1e-3);
  EXPECT_NEAR(replayed_ms(sandbox, "--as-others 2,3").back(), 59, 1e-3);
  EXPECT_NEAR(replayed_ms(sandbox, "--as-others 2").back(), 75.2, 1e-3);
}

// Two of 8 ranks are slow, one by 1.30 and one by 1.28, which waits 1 ms for the slower one.
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

// Rank 0 takes 0.6 times as long and waits for the others, but no single one causes this: with one mended, a
// step takes as long as before. With 5 gathers, rank 0 waits 4 ms before four of them and the all-reduce and,
// from the second step on, 1.6 before the first: 20 + 3 * 21.6 of 4 * 69 - 1.6 ms. The others wait for
// nobody.
TEST(Stragglers, AFastRankMakesNoOtherAStraggler) {
  const Sandbox sandbox;
  MadeRun run;
  run.gathers = 5;
  run.factor = [](int r, int) { return r == 0 ? 0.6 : 1.0; };
  const RunResult result = sandbox.run("import --kineto" + run.write(sandbox) +
                                       " --format json --fail-on straggler --out run.json");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(json::parse(result.out)["stragglers"].empty());
  EXPECT_EQ(findings(result),
            std::vector<std::string>{
                "waiting: r0.json and 3 more: rank 0 waits 30.9 % of its steps for the others, and for no "
                "single one of them; it computes 0.60 x the median"});
  EXPECT_NEAR(replayed_ms(sandbox, "--as-others 1").back(), 69, 1e-3);
}

// Seven of eight ranks take 1.3 times as long. Rank 0 waits 15 ms in its first step of 74 ms and 16.2 in its
// second of 75.2. That is 31.2 of 149.2 of its own steps, but only 2.6 % of all ranks' steps.
TEST(Stragglers, ASingleWaitingRankIsReported) {
  const Sandbox sandbox;
  MadeRun run;
  run.ranks = 8;
  run.steps = 2;
  run.factor = [](int r, int) { return r == 0 ? 1.0 : 1.3; };
  const auto found = findings(sandbox.run("import --kineto" + run.write(sandbox) + " --format json"));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].find("waiting: r0.json and 7 more: rank 0 waits 20.9 % of its steps for the others"),
            std::string::npos)
      << found[0];
}

// Three ranks take 1.4, 1.38 and 1.35 times as long as the first. Mending the slowest saves 0.02 * 54 of 84.6
// ms, so it is not the rank that the others wait for.
TEST(Stragglers, TheSlowestOfManySlowRanksIsNoStraggler) {
  const Sandbox sandbox;
  MadeRun run;
  run.factor = [](int r, int) { return std::vector<double>{1, 1.4, 1.38, 1.35}[r]; };
  const auto found = findings(sandbox.run("import --kineto" + run.write(sandbox) + " --format json"));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].find("waiting: r0.json and 3 more: rank 0 waits 2"), std::string::npos) << found[0];
  EXPECT_NE(found[0].find("it computes 0.74 x the median"), std::string::npos) << found[0];  // of 1.35
}

// Rank 2 takes 1.4 times as long and rank 5 1.15: 54 * 1.4 + 5 = 80.6 ms. With rank 2 mended, 54 * 1.15 + 5 =
// 67.1 remain, which is 16.7 % less, not the 59 of a run without slow ranks.
TEST(Stragglers, SavingsFromMendingStopAtTheNextSlowRank) {
  const Sandbox sandbox;
  MadeRun run;
  run.ranks = 8;
  run.factor = [](int r, int) { return r == 2 ? 1.4 : r == 5 ? 1.15 : 1.0; };
  const RunResult result = sandbox.run("import --kineto" + run.write(sandbox) + " --format json");
  const auto found = findings(result);
  ASSERT_EQ(found.size(), 1u) << result.out;
  EXPECT_TRUE(found[0].ends_with("; 'replay --as-others 2' saves 16.7 % of a step")) << found[0];
  // Scripts can read the figures of the text.
  const json stragglers = json::parse(result.out)["stragglers"];
  ASSERT_EQ(stragglers.size(), 1u);
  EXPECT_EQ(stragglers[0]["rank"], 2);
  EXPECT_NEAR(stragglers[0]["compute_ratio"].get<double>(), 1.4, 1e-6);
  EXPECT_EQ(stragglers[0]["waiting_ranks"], 7);
  EXPECT_NE(found[0].find(fmt::format("the other 7 ranks wait {:.1f} %",
                                      100 * stragglers[0]["others_wait_fraction"].get<double>())),
            std::string::npos);
  EXPECT_NEAR(stragglers[0]["idle_fraction"].get<double>(), 0, 1e-6);
  EXPECT_NEAR(stragglers[0]["saved_fraction"].get<double>(), 1 - 67.1 / 80.6, 1e-6);
  EXPECT_EQ(stragglers[0]["saved_fraction_all"], stragglers[0]["saved_fraction"]);
}

// In each step a different rank takes 1.5 times as long, so the others wait 25 ms and more of 84.
TEST(Stragglers, RanksThatAreSlowInTurnsAreReported) {
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

// Rank 3 waits 15 ms for its data before each step, and the others then wait for it: 15 + 50 + 5 + 4 = 74 ms,
// including the first and last steps, and 59 with data in time. With 5 all-gathers of 2 ms, rank 3's wait
// comes before the first one, and its compute between them could not be shorter: 84 and 69 ms.
TEST(Stragglers, TheSuggestedWhatIfMendsALateRank) {
  const Sandbox sandbox;
  for (const int gathers : {0, 5}) {
    MadeRun run;
    run.gathers = gathers;
    run.data_ms = [](int r, int) { return r == 3 ? 15.0 : 0.0; };
    const RunResult result =
        sandbox.run("import --kineto" + run.write(sandbox) + " --out run.json --format json");
    const auto found = findings(result);
    ASSERT_EQ(found.size(), 1u) << result.out;
    EXPECT_NE(found[0].find("rank 3 computes 1.00 x the median, and its device idles"), std::string::npos);
    EXPECT_NE(found[0].find("; 'replay --as-others 3' saves "), std::string::npos) << found[0];
    EXPECT_NEAR(json::parse(result.out)["stragglers"][0]["saved_fraction"].get<double>(),
                15.0 / (74 + 2 * gathers), 1e-6);
    const json steps = json::parse(result.out)["pipeline"];
    ASSERT_EQ(steps.size(), 4u);
    for (const json& step : steps) {
      EXPECT_NEAR(step["duration_s"].get<double>(), (74 + 2 * gathers) * 1e-3, 1e-9);
      EXPECT_NEAR(step["replayed_s"].get<double>(), (74 + 2 * gathers) * 1e-3, 1e-9);
    }
    EXPECT_NEAR(replayed_ms(sandbox, "--as-others 3").back(), 59 + 2 * gathers, 1e-3);
  }
}

// In one of four steps, rank 1 takes 1.8 times as long or is 20 ms late. Mended, all steps take 69 ms. The
// mended step takes as long as rank 1's previous step, in which rank 1 is fast.
TEST(Stragglers, ARankThatIsSlowInOneStepIsMendedInThatStep) {
  const Sandbox sandbox;
  const auto mended_ms = [&](const MadeRun& run) {
    const RunResult result =
        sandbox.run("import --kineto" + run.write(sandbox) + " --out run.json --format json");
    const auto found = findings(result);
    EXPECT_EQ(found.size(), 1u) << result.out;
    EXPECT_NE(result.out.find("'replay --as-others 1' saves "), std::string::npos) << result.out;
    return replayed_ms(sandbox, "--as-others 1").back();
  };
  MadeRun slow;
  slow.gathers = 5;
  slow.factor = [](int r, int s) { return r == 1 && s == 2 ? 1.8 : 1.0; };
  EXPECT_NEAR(mended_ms(slow), 69, 1e-3);
  MadeRun late;
  late.gathers = 5;
  late.data_ms = [](int r, int s) { return r == 1 && s == 2 ? 20.0 : 0.0; };
  EXPECT_NEAR(mended_ms(late), 69, 1e-3);
}

TEST(Stragglers, InvalidRanksToMendAreRejected) {
  const Sandbox sandbox;
  ASSERT_EQ(sandbox.run("import --kineto" + MadeRun{}.write(sandbox) + " --out run.json").exit_code, 0);
  const auto refused = [&](const std::string& ranks, const std::vector<std::string>& parts) {
    expect_error(sandbox.run("replay --trace run.json --as-others " + ranks), parts);
  };
  refused("4", {"'--as-others'", "ranks of 0, 1, 2, 3", "'4'"});
  refused("1,", {"'--as-others'", "as 3 or 3,5", "'1,'"});
  refused("0,1,2,3", {"'--as-others'", "another rank that enters 1 collectives"});
  testing::write_all(sandbox.path("p.json"), testing::two_stages("1f1b", 2));
  ASSERT_EQ(sandbox.run("simulate --pipeline p.json --out run.json").exit_code, 0);
  refused("1", {"'--as-others'", "run.json", "meet in collectives"});
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
  // Fewer traces give the same finding. Without a world size, process groups give the number of ranks.
  EXPECT_EQ(
      findings(sandbox.run("import --kineto r0.json r1.json r3.json --format json")).back(),
      "missing_rank: r0.json: the run has 8 ranks by distributedInfo.world_size, found traces of 3; missing "
      "2, 4, 5, 6, 7");
  run.world_size = -1;
  run.write(sandbox);
  EXPECT_NE(sandbox.run("import --kineto r0.json r2.json r3.json")
                .out.find("the run has 4 ranks by the size of a process group, found traces of 3; missing 1"),
            std::string::npos);
  // The same holds for a single trace that gives the number of ranks.
  run.world_size = 0;
  run.write(sandbox);
  EXPECT_EQ(findings(sandbox.run("import --kineto r1.json --format json")),
            std::vector<std::string>{"missing_rank: r1.json: the run has 4 ranks by "
                                     "distributedInfo.world_size, found traces of 1; missing 0, 2, 3"});
  EXPECT_EQ(sandbox.run("import --kineto r1.json --fail-on missing_rank").exit_code, 3);
}

// Rank 2 of 4 takes 1.5 times as long and has no file. The others' all-reduces last 5 + 25 ms, of which 25
// are not transfer. Links of four times the bandwidth would save 3.75 ms, not 22.5.
TEST(Stragglers, ReplaysSayThatRanksAreMissingAndRejectOtherLinks) {
  const Sandbox sandbox;
  MadeRun run;
  run.factor = [](int r, int) { return r == 2 ? 1.5 : 1.0; };
  run.write(sandbox);
  ASSERT_EQ(sandbox.run("import --kineto r0.json r1.json r3.json --out run.json").exit_code, 0);
  const std::string missing =
      "r0.json: the run has 4 ranks by distributedInfo.world_size, found traces of 3; missing 2";
  const RunResult as_was =
      sandbox.run("replay --trace run.json --as-others 1 --out again.json --format json");
  ASSERT_EQ(as_was.exit_code, 0) << as_was.err;
  EXPECT_NE(as_was.err.find("run.json has a finding that may make what-ifs wrong: missing_rank: " + missing),
            std::string::npos)
      << as_was.err;
  EXPECT_EQ(json::parse(as_was.out)["findings"], json({{{"finding", "missing_rank"}, {"text", missing}}}));
  for (const std::string file : {"run.json", "again.json"}) {
    for (const std::string option :
         {"--bandwidth-scale 4", "--latency-scale 2", "--slow-link rank=1:0.5", "--network none"}) {
      expect_error(
          sandbox.run("replay --trace " + file + " " + option),
          {"'" + option.substr(0, option.find(' ')) + "'", file, missing, "the traces of all ranks"});
    }
  }
  const std::string whole = "import --kineto r0.json r1.json r2.json r3.json --out run.json";
  ASSERT_EQ(sandbox.run(whole).exit_code, 0);
  EXPECT_NEAR(replayed_ms(sandbox, "--bandwidth-scale 4").back(), 54 * 1.5 + 5 - 3.75, 1e-3);
  EXPECT_EQ(sandbox.run("replay --trace run.json").err.find("finding"), std::string::npos);
}

TEST(Stragglers, ImpossibleRanksAndSizesAreRejected) {
  const Sandbox sandbox;
  MadeRun run;
  run.world_size = 3;  // for 4 ranks in one group
  run.write(sandbox);
  expect_error(
      sandbox.run("import --kineto r0.json r1.json"),
      {"r0.json: key 'distributedInfo.world_size'", "at least 4 ranks", "process group '0'", "found 3"});
  expect_error(sandbox.run("import --kineto r3.json"),
               {"r3.json: key 'distributedInfo.rank'", "a rank below 3", "found 3"});
  run.world_size = 8;
  run.write(sandbox);
  const std::string eight = testing::read_all(sandbox.path("r1.json"));
  run.world_size = 4;
  run.write(sandbox);
  testing::write_all(sandbox.path("r1.json"), eight);
  expect_error(sandbox.run("import --kineto r0.json r1.json r2.json r3.json"),
               {"r1.json: key 'distributedInfo.world_size'", "expected 4 as in r0.json, found 8"});
}

// Rank 1's first all-reduce is empty, and rank 2's has a type that no other rank gives. 1000 floats are 4000
// bytes.
TEST(Stragglers, CollectivesOfUnequalSizesAndTypesAreFound) {
  const Sandbox sandbox;
  MadeRun run;
  const std::string import = "import --kineto" + run.write(sandbox) + " --format json --out run.json";
  const auto change = [&](const std::string& file, const std::string& from, const std::string& to) {
    const std::string text = testing::read_all(sandbox.path(file));
    testing::write_all(sandbox.path(file), std::string(text).replace(text.find(from), from.size(), to));
  };
  change("r1.json", R"("In msg nelems": 1000)", R"("In msg nelems": 0)");
  change("r2.json", R"("dtype": "Float")", R"("dtype": "x")");
  const RunResult result = sandbox.run(import + " --fail-on unequal_collective");
  EXPECT_EQ(result.exit_code, 3);
  const auto found = findings(result);
  ASSERT_EQ(found.size(), 2u) << result.out;
  EXPECT_TRUE(found[0].starts_with("unequal_collective: r1.json: traceEvents[")) << found[0];
  EXPECT_TRUE(
      found[0].ends_with("allreduce: expected Float, 4000 bytes in, 4000 bytes out, as on other ranks, "
                         "found Float, 0 bytes in, 4000 bytes out"))
      << found[0];
  EXPECT_TRUE(found[1].ends_with("found x, unknown bytes in, unknown bytes out")) << found[1];
  EXPECT_NE(sandbox.run("replay --trace run.json").err.find("unequal_collective"), std::string::npos);
}

TEST(Stragglers, ARankWithoutKernelsIsNamed) {
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
  // Without a gate, the missing output is an error that names the right file.
  expect_error(sandbox.run(import + " --out run.json"),
               {"r1.json", "found a rank without kernels", "without '--out'"});
  EXPECT_FALSE(sandbox.has("run.json"));
}

// Hosts whose clocks differ by 3 ms and a second are aligned by their shared collectives. Without sequence
// numbers, collectives are matched by time, which requires clocks that agree.
TEST(Stragglers, AlignedClocksAreNoFinding) {
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
  // A clock that drifts by 0.6 ms per step makes ends 0, 0.6, 1.2 and 1.8 late, so no single offset is within
  // 0.5.
  run.says_groups = true;
  run.clock_ms = [](int r, int s) { return r == 1 ? 0.6 * s : 0.0; };
  run.write(sandbox);
  EXPECT_NE(sandbox.run(import).err.find("1 of kind unaligned_clocks"), std::string::npos);
}

}  // namespace stragglers_test
}  // namespace dflop
