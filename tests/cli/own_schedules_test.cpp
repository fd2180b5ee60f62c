// Schedules from outside dflop: a scheduler process, bins in a table, files written by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/run.hpp"

namespace dflop {
namespace own_schedules_test {

using nlohmann::json;
using testing::RunResult;
using testing::Sandbox;

/// A plan on 8 GPUs with four dp ranks and three microbatches.
const char* const kPlan = R"({"schema": "dflop.plan", "version": 1, "planner": "pytorch",
  "model": "llava-ov-llama3-8b", "cluster": "a100-80g-vtrain:1", "gbs": 32, "layout": "uniform",
  "encoder": {"tp": 2, "pp": 1, "dp": 4, "layers": [27]}, "llm": {"tp": 2, "pp": 1, "dp": 4, "layers": [32]},
  "microbatches": 3, "schedule": "1f1b", "recomputation": "none", "zero1": true, "sequence_parallel": true})";

/// Expects an error whose line, after notes about the data, has all of `parts`, and no result.
void expect_told(const RunResult& result, const std::vector<std::string>& parts) {
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_TRUE(result.out.empty()) << result.out;
  const std::size_t error = result.err.find("dflop: error: ");
  ASSERT_NE(error, std::string::npos) << result.err;
  for (const std::string& part : parts)
    EXPECT_NE(result.err.find(part, error), std::string::npos) << part << "\n" << result.err;
}

/// The command that runs the example scheduler.
const std::string kExample =
    "'python3 \"" + std::string(DFLOP_SOURCE_DIR) + "/experiments/examples/scheduler.py\"'";

struct OwnSchedules : ::testing::Test {
  Sandbox sandbox;

  OwnSchedules() { testing::write_all(sandbox.path("p.json"), kPlan); }

  RunResult schedule(const std::string& options) {
    return sandbox.run(
        "schedule --plan p.json --data traces/datasets/vision_mix.csv --modalities image --iterations 2 " +
        options);
  }
  RunResult check(const std::string& file) {
    return sandbox.run("check schedule --plan p.json --schedule " + file + " --format json");
  }
  json file(const std::string& name) {
    return json::parse(testing::read_all(sandbox.path(name)), nullptr, false);
  }
  /// Schedules with a process that runs this Python text. The text has the request in `r` and prints the
  /// answer.
  RunResult by_python(const std::string& text, const std::string& options = "") {
    testing::write_all(sandbox.path("s.py"),
                       "import json, sys, time\nfor line in sys.stdin:\n  r = json.loads(line)\n  " + text +
                           "\n  sys.stdout.flush()\n");
    return schedule("--scheduler-command 'python3 s.py' --out own.json " + options);
  }
};

// Bins from a table equal those in the file that dflop writes, so only the file's origin differs.
TEST_F(OwnSchedules, BinsComeFromATable) {
  ASSERT_EQ(schedule("--scheduler lpt --bin-order solver --out lpt.json").exit_code, 0);
  const json wanted = file("lpt.json");
  std::string csv = "note,iteration,sample,bin\n";
  json rows = json::array();
  for (int k = 0; k < 2; ++k) {
    const json& iteration = wanted["iterations"][k];
    rows.push_back(iteration["bins"]);
    for (std::size_t i = 0; i < 32; ++i) {
      const json& sample = wanted["samples"][iteration["samples"][i].get<std::size_t>()];
      csv += "x," + std::to_string(k) + "," + sample["id"].get<std::string>() + "," +
             std::to_string(iteration["bins"][i].get<int>()) + "\n";
    }
  }
  testing::write_all(sandbox.path("bins.csv"), csv);
  testing::write_all(sandbox.path("bins.json"), rows.dump());
  for (const std::string name : {"bins.csv", "bins.json"}) {
    const RunResult result = schedule("--bins " + name + " --out own.json");
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const json own = file("own.json");
    EXPECT_EQ(own["samples"], wanted["samples"]);
    for (int k = 0; k < 2; ++k) {
      EXPECT_EQ(own["iterations"][k]["bins"], wanted["iterations"][k]["bins"]);
      EXPECT_EQ(own["iterations"][k]["c_max_s"], wanted["iterations"][k]["c_max_s"]);
    }
    EXPECT_EQ(sandbox.run("simulate --plan p.json --schedule own.json").exit_code, 0);
  }
  std::string other = csv;
  other.replace(other.find(",0,") + 3, 2, "no");
  testing::write_all(sandbox.path("other.csv"), other);
  expect_told(schedule("--bins other.csv"), {"other.csv: iteration 0", "expected sample", "found 'no"});
  testing::write_all(sandbox.path("short.csv"), "bin\n1\n2\n");
  expect_told(schedule("--bins short.csv"), {"short.csv", "bins of 2 iterations", "found 1"});
  testing::write_all(sandbox.path("word.csv"), "bin\n1\nx\n");
  expect_told(schedule("--bins word.csv"), {"word.csv:row 3, column 'bin'", "found 'x'"});
  rows[1][0] = 12;  // of bins 0 to 11
  testing::write_all(sandbox.path("range.json"), rows.dump());
  expect_told(schedule("--bins range.json"), {"range.json: iteration 1", "12"});
  expect_told(schedule("--bins bins.csv --scheduler lpt"), {"--scheduler", "--bins"});
}

TEST_F(OwnSchedules, AFileThatWasEditedIsFound) {
  ASSERT_EQ(schedule("--scheduler ilp --node-budget 0 --out s.json").exit_code, 0);
  EXPECT_EQ(check("s.json").exit_code, 0) << check("s.json").err;
  ASSERT_EQ(schedule("--scheduler lpt --objective makespan --out m.json").exit_code, 0);
  EXPECT_EQ(check("m.json").exit_code, 0) << check("m.json").err;

  const json whole = file("s.json");
  json edited = whole;
  // Breaks the bins: all items of bin 0 but one go to bin 1.
  json& bins = edited["iterations"][1]["bins"];
  bool first = true;
  for (json& bin : bins) {
    if (bin != 0) continue;
    if (!first) bin = 1;
    first = false;
  }
  testing::write_all(sandbox.path("edited.json"), edited.dump());
  const RunResult stale = check("edited.json");
  EXPECT_EQ(stale.exit_code, 2);
  EXPECT_NE(stale.err.find("edited.json: key 'iterations[1]': c_max_s: expected "), std::string::npos)
      << stale.err;
  EXPECT_EQ(stale.err.find("iterations[0]"), std::string::npos) << stale.err;

  // Without the proven figures, it is a user's own schedule.
  for (json& iteration : edited["iterations"]) {
    for (const char* key : {"status", "c_max_s", "bound_s", "bound_kind", "objective"}) iteration.erase(key);
  }
  edited.erase("scheduler");
  edited.erase("seed");
  testing::write_all(sandbox.path("hand.json"), edited.dump());
  const RunResult hand = check("hand.json");
  EXPECT_EQ(hand.exit_code, 0) << hand.err;
  EXPECT_TRUE(testing::rows_of(hand.out)[0]["c_max_s"].is_null());
  EXPECT_EQ(sandbox.run("simulate --plan p.json --schedule hand.json").exit_code, 0);

  json bound = file("m.json");
  bound["iterations"][0]["c_max_s"] = bound["iterations"][0]["c_max_s"].get<double>() * 1.01;
  testing::write_all(sandbox.path("m2.json"), bound.dump());
  EXPECT_NE(check("m2.json").err.find("iterations[0]': c_max_s"), std::string::npos);
  bound = whole;
  bound["iterations"][0]["bound_s"] = 0.5 * whole["iterations"][0]["bound_s"].get<double>();
  testing::write_all(sandbox.path("b.json"), bound.dump());
  EXPECT_NE(check("b.json").err.find("iterations[0]': bound_s: expected"), std::string::npos);
}

struct SchedulerCommand : OwnSchedules {
  void SetUp() override {
    if (std::system("python3 -c '' > /dev/null 2>&1") != 0) GTEST_SKIP() << "no python3";
  }
  /// Compares p.json, filled by a script that runs `each` and answers `bins` for each request r.
  RunResult compared_by(const std::string& each, const std::string& bins, const std::string& options) const {
    testing::write_all(sandbox.path("own.py"),
                       "import json, sys\nfor line in sys.stdin:\n  r = json.loads(line)\n  " + each +
                           "\n  print(json.dumps({'bins': " + bins + "}), flush=True)\n");
    return sandbox.run(
        "compare --systems pytorch --plan p.json --gbs 32 --model llava-ov-llama3-8b --cluster a100-80g-vtrain:1 "
        "--data traces/datasets/vision_mix.csv --modalities image --iterations 2 " +
        options + "--scheduler-command \"python3 own.py\"");
  }
};

TEST_F(SchedulerCommand, TheExampleIsARowOfCompare) {
  const RunResult own = schedule("--scheduler-command " + kExample + " --out own.json --format json");
  ASSERT_EQ(own.exit_code, 0) << own.err;
  ASSERT_EQ(schedule("--scheduler lpt --bin-order solver --out lpt.json").exit_code, 0);
  // The example works like LPT, so its largest bin has the same size.
  for (int k = 0; k < 2; ++k) {
    EXPECT_NEAR(file("own.json")["iterations"][k]["c_max_s"].get<double>(),
                file("lpt.json")["iterations"][k]["c_max_s"].get<double>(), 1e-9);
  }
  const std::string data = "--data traces/datasets/vision_mix.csv --modalities image --iterations 2 ";
  const RunResult compared = sandbox.run(
      "compare --systems pytorch --plan p.json --gbs 32 --model llava-ov-llama3-8b --cluster a100-80g-vtrain:1 " +
      data + "--format json --scheduler-command " + kExample);
  ASSERT_EQ(compared.exit_code, 0) << compared.err;
  const json systems = json::parse(compared.out)["systems"];
  ASSERT_EQ(systems.size(), 2u);
  EXPECT_EQ(systems[0]["scheduler"], "random");
  EXPECT_EQ(systems[1]["scheduler"], "command");
  EXPECT_GT(systems[1]["samples_per_s"], 0);
}

// A command may be slow and may count its requests. compare asks only for the batches of its rows, two per
// seed, and fills the further batches of the memory estimate with lpt.
TEST_F(SchedulerCommand, IsAskedOnlyForTheBatchesOfARow) {
  const RunResult compared = compared_by("open('asked', 'a').write(str((r['seed'], r['iteration'])) + '\\n')",
                                         "[i % r['bins'] for i in range(32)]", "--seeds 1 ");
  ASSERT_EQ(compared.exit_code, 0) << compared.err;
  const std::string asked = testing::read_all(sandbox.path("asked"));
  EXPECT_EQ(asked, "(1, 0)\n(1, 1)\n");
}

// The first bin gets all samples except one for each other bin, which breaks the cap: LPT fills both batches.
TEST_F(SchedulerCommand, CompareReportsItsReplacement) {
  const RunResult compared = compared_by("pass", "[i if i < r['bins'] else 0 for i in range(32)]",
                                         "--token-cap 40000 --format json ");
  ASSERT_EQ(compared.exit_code, 0) << compared.err;
  const json assumptions = json::parse(compared.out)["assumptions"];
  const json& schedule = assumptions["schedule"][0];
  EXPECT_EQ(schedule["system"], "p");
  EXPECT_EQ(schedule["fallbacks"], 2);
  EXPECT_NE(schedule["text"].get<std::string>().find("p: command did not schedule 2 of 2 batches itself"),
            std::string::npos)
      << schedule;
  // The memory that LPT would need does not apply to the command's microbatches.
  EXPECT_NE(assumptions.dump().find("p: unknown for further batches"), std::string::npos) << assumptions;
  for (const json& memory : assumptions["memory"]) {
    const std::string names = ", " + memory.value("systems", "") + ",";
    EXPECT_EQ(names.find(", p,"), std::string::npos) << names;
  }
  EXPECT_TRUE(json::parse(compared.out)["systems"][1]["fits_further"].is_null());
}

TEST_F(SchedulerCommand, SendsADocumentedRequest) {
  const RunResult result = by_python(
      "open('asked.json', 'a').write(line); print(json.dumps({'bins': [i % r['bins'] for i in range(32)]}))");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string asked = testing::read_all(sandbox.path("asked.json"));
  EXPECT_EQ(std::count(asked.begin(), asked.end(), '\n'), 2);
  const json request = json::parse(asked.substr(0, asked.find('\n')));
  EXPECT_EQ(request["schema"], "dflop.schedule_request");
  EXPECT_EQ(request["iteration"], 0);
  EXPECT_EQ(request["bins"], 12);
  EXPECT_EQ(request["microbatches"], 3);
  EXPECT_EQ(request["dp"], 4);
  EXPECT_EQ(request["items"].size(), 32u);
  EXPECT_GT(request["items"][0]["llm_s"], 0);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(file("own.json")["iterations"][1]["bins"][i], i % 12);
  EXPECT_EQ(check("own.json").exit_code, 0);
}

TEST_F(SchedulerCommand, ErrorsAreReported) {
  const auto expect = [&](const std::string& text, const std::vector<std::string>& parts,
                          const std::string& options = "") {
    std::vector<std::string> all = {"scheduler command 'python3 s.py': iteration 0"};
    all.insert(all.end(), parts.begin(), parts.end());
    expect_told(by_python(text, options), all);
    EXPECT_FALSE(sandbox.has("own.json"));
  };
  expect("print('bins')", {"answer"});
  expect("print('[1, 2]')", {"answer", "expected an object"});
  expect("print(json.dumps({'bins': [0] * 31}))", {"a bin for each of 32 items, found 31"});
  expect("print(json.dumps({'bins': [0] * 32}))", {"found none in bin 1"});
  expect("print(json.dumps({'bins': [i % 13 for i in range(32)]}))", {"bins[12]", "12"});
  expect("print(json.dumps({'bins': [i % 12 for i in range(32)], 'iteration': 7}))",
         {"an answer for iteration 0"});
  expect("print(json.dumps({'error': 'too few samples'}))", {"it answers with an error: too few samples"});
  expect("sys.exit(3)", {"it ended with exit code 3 before it answered"});
  expect("time.sleep(60)", {"within 0.3 s"}, "--scheduler-timeout 0.3");
  expect_told(schedule("--scheduler-command 'no-such-program-there 2> /dev/null'"), {"exit code 127"});
  expect_told(schedule("--scheduler-command cat --scheduler lpt"), {"--scheduler-command", "--scheduler"});
  // A second line for one request would be taken as the answer to the next.
  expect_told(by_python("print(json.dumps({'bins': [i % 12 for i in range(32)]})); print('done')"),
              {"iteration 1", "one line for each request"});
}

}  // namespace own_schedules_test
}  // namespace dflop
