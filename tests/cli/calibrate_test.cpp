// dflop check published and dflop calibrate as a user runs them, and the underlying fit.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "core/iteration/iteration.hpp"
#include "core/support/random.hpp"
#include "costmodel/analytic/analytic.hpp"
#include "experiments/checks/published/calibration.hpp"
#include "experiments/cli/option_values.hpp"
#include "experiments/presets/presets.hpp"
#include "sim/engine.hpp"
#include "tests/cli/run.hpp"
#include "tests/rounds.hpp"
#include "traces/files/timeline.hpp"

namespace dflop {
namespace calibrate_test {

using nlohmann::json;
using testing::RunResult;
using testing::Sandbox;

const std::string kFolder = std::string(DFLOP_SOURCE_DIR) + "/traces/ground_truth/";

TEST(Validate, PrintsTheErrorsOfEachFile) {
  const Sandbox sandbox;
  const RunResult result = sandbox.run(
      "check published --truth traces/ground_truth/llama_b200.csv traces/ground_truth/megatron_a100_multi.csv "
      "--cluster b200 --format json --rows rows.csv");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json sets = json::parse(result.out)["sets"];
  ASSERT_EQ(sets.size(), 2u);
  EXPECT_EQ(sets[0]["file"], "traces/ground_truth/llama_b200.csv");
  EXPECT_EQ(sets[0]["rows"], 12);
  EXPECT_LT(sets[0]["time_mape_percent"], 4);
  EXPECT_LT(sets[0]["memory_mape_percent"], 0.5);
  EXPECT_LE(sets[0]["time_median_ape_percent"], sets[0]["time_p95_ape_percent"]);
  EXPECT_LE(sets[0]["time_p95_ape_percent"], sets[0]["time_max_ape_percent"]);
  EXPECT_EQ(sets[1]["rows"], 54);
  EXPECT_TRUE(sets[1]["memory_mape_percent"].is_null());
  const std::string rows = testing::read_all(sandbox.path("rows.csv"));
  EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 1 + 12 + 54);
}

/// A text step of dflop on one H100 took 0.563 s with cuDNN attention, which the preset represents, and 0.599
/// s with dflop's own kernels. Both are within 5 % of the same prediction.
TEST(Validate, ComparesThePresetWithDflopsOwnRuns) {
  const Sandbox sandbox;
  const RunResult result = sandbox.run(
      "check published --truth traces/ground_truth/dflop_h100.csv --cluster h100-dflop --format json --rows rows.csv");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_LT(json::parse(result.out)["sets"][0]["time_max_ape_percent"], 5);
}

TEST(Validate, RejectsBrokenFilesAndOptions) {
  const Sandbox sandbox;
  testing::write_all(sandbox.path("bad.csv"), "gpus,tp\n1,1\n");
  EXPECT_EQ(sandbox.run("check published --truth bad.csv --cluster b200").exit_code, 2);
  EXPECT_EQ(sandbox.run("check published --truth none.csv --cluster b200").exit_code, 2);
  EXPECT_EQ(sandbox.run("check published --cluster b200").exit_code, 2);
  EXPECT_EQ(
      sandbox.run("check published --truth traces/ground_truth/llama_b200.csv --cluster c300").exit_code, 2);
  testing::write_all(sandbox.path("own.csv"), testing::read_all(kFolder + "llama_b200.csv"));
  const RunResult same = sandbox.run("check published --truth own.csv --cluster b200 --rows own.csv");
  EXPECT_EQ(same.exit_code, 2);
  EXPECT_NE(same.err.find("is also the file of '--truth'"), std::string::npos) << same.err;
}

/// The first row says 843 s instead of 0.843 s, or twice the time. No other row is far off.
TEST(Calibrate, NotesARowThatIsFarOff) {
  const Sandbox sandbox;
  const std::string rows = testing::read_all(kFolder + "llama_b200.csv");
  const std::vector<TruthRow> good = read_ground_truth(kFolder + "llama_b200.csv").rows;
  const std::string measured = fmt::format(",{},", good[0].iteration.count());
  const std::size_t at = rows.find(measured);
  ASSERT_NE(at, std::string::npos) << measured;
  for (const int factor : {2, 1000}) {
    std::string wrong = rows;
    wrong.replace(at, measured.size(), fmt::format(",{},", factor * good[0].iteration.count()));
    testing::write_all(sandbox.path("slip.csv"), wrong);
    for (const std::string command : {"check published", "calibrate"}) {
      const RunResult result = sandbox.run(command + " --truth slip.csv --cluster b200");
      EXPECT_EQ(result.exit_code, 0) << result.err;
      const std::string place = fmt::format("dflop: note: slip.csv:row {}: measured ", good[0].row);
      EXPECT_NE(result.err.find(place), std::string::npos) << result.err;
      EXPECT_EQ(result.err.find(": measured "), result.err.rfind(": measured ")) << result.err;
    }
  }
  for (const std::string command : {"check published", "calibrate"}) {
    const RunResult fine =
        sandbox.run(command + " --truth traces/ground_truth/llama_b200.csv --cluster b200");
    EXPECT_EQ(fine.err.find("check this row"), std::string::npos) << fine.err;
  }
}

/// A fit tries at least a quarter of the starting bandwidth, and the rows have a fifth of it.
TEST(Calibrate, NotesAParameterThatEndsAtABound) {
  const Sandbox sandbox;
  json base = json::parse(cluster_text("b200:1").substr(0, cluster_text("b200:1").rfind(':')));
  json& link = base["intra_node"];
  link["bandwidth_bytes_per_s"] = 5 * link["bandwidth_bytes_per_s"].get<double>();
  link.erase("line_rate_bytes_per_s");
  testing::write_all(sandbox.path("base.json"), base.dump());
  const RunResult result =
      sandbox.run("calibrate --truth traces/ground_truth/llama_b200.csv --cluster base.json");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("note: intra_node.bandwidth_bytes_per_s ended at a limit of its range"),
            std::string::npos)
      << result.err;
}

/// Every second row took 4 times as long. A fit that matches one of two similar rows is off by a factor of 4
/// on the other; in between, both errors are 2 or 1/2.
TEST(Calibrate, SaysNotToPlanWithAClusterThatMissesRows) {
  const Sandbox sandbox;
  std::istringstream rows(testing::read_all(kFolder + "llama_b200.csv"));
  std::string line;
  std::string noisy;
  for (int row = 0; std::getline(rows, line); ++row) {
    const std::vector<std::string_view> parts = split(line, ',');
    std::vector<std::string> fields(parts.begin(), parts.end());
    if (row > 0 && row % 2 == 0) fields[6] = std::to_string(4 * std::stod(fields[6]));
    noisy += fmt::format("{}\n", fmt::join(fields, ","));
  }
  testing::write_all(sandbox.path("noisy.csv"), noisy);
  const RunResult result = sandbox.run("calibrate --truth noisy.csv --cluster b200 --format json");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_GT(json::parse(result.out)["sets"][0]["held_out_mape_percent"], 20);
  EXPECT_NE(result.err.find("do not plan with this cluster"), std::string::npos) << result.err;
}

/// 3 of the 8 GPUs of a node neither fill it nor divide it into whole groups.
TEST(Calibrate, RejectsTensorGroupsThatNodesCannotHold) {
  const Sandbox sandbox;
  testing::write_all(sandbox.path("three.csv"),
                     "gpus,global_batch,micro_batch,hidden,heads,layers,seq,tp,dp,pp,iteration_s\n"
                     "24,32,2,1536,24,24,512,3,4,2,1\n");
  for (const char* command : {"check published", "calibrate"}) {
    testing::expect_error(
        sandbox.run(std::string(command) + " --truth three.csv --cluster a100-80g"),
        {"three.csv:row 2, column 'tp': expected a divisor or a multiple of the 8 GPUs", "found '3'"});
  }
}

TEST(Calibrate, WritesAClusterThatOtherCommandsRead) {
  const Sandbox sandbox;
  const std::string command =
      "calibrate --truth traces/ground_truth/llama_b200.csv --cluster b200 --format json --out ";
  const RunResult first = sandbox.run(command + "one.json");
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const RunResult second = sandbox.run(command + "two.json");
  EXPECT_EQ(first.out, second.out);
  EXPECT_EQ(first.err.find("do not plan"), std::string::npos) << first.err;
  EXPECT_NE(first.err.find("b200 is itself the result of a fit, with an error of 2.1 %"), std::string::npos)
      << first.err;
  const json cluster = json::parse(testing::read_all(sandbox.path("one.json")));
  EXPECT_EQ(cluster["fit"]["sets"][0]["rows"], 12);
  EXPECT_EQ(cluster["fit"]["folds"], 5);
  // The preset was fitted to these rows, so they do not change any parameter.
  EXPECT_EQ(cluster["fit"]["parameters"], json::array());
  EXPECT_EQ(cluster["fit"]["kept"].size(), 14u);
  // So no row is held out here, and the error comes from the preset's own fit, which held rows out.
  EXPECT_LT(json::parse(first.out)["sets"][0]["held_out_mape_percent"].get<double>(), 1.7);
  EXPECT_EQ(cluster["grade"]["error"], 0.0208);
  const json parameters = json::parse(first.out)["parameters"];
  for (const json& parameter : parameters) {
    EXPECT_EQ(parameter["kept"], "yes") << parameter;
    EXPECT_TRUE(parameter["fitted"].is_null()) << parameter;
  }
  const RunResult read = sandbox.run(
      "check published --truth traces/ground_truth/llama_b200.csv --cluster one.json --format json");
  ASSERT_EQ(read.exit_code, 0) << read.err;
  EXPECT_NEAR(json::parse(read.out)["sets"][0]["time_mape_percent"].get<double>(),
              json::parse(first.out)["sets"][0]["in_sample_mape_percent"].get<double>(), 1e-6);
}

/// Returns every `step`th row of a file with the times that `made` predicts.
PreparedSet rows_of(const char* file, std::size_t step, const ClusterSpec& made) {
  const TruthSet all = read_ground_truth(kFolder + file);
  TruthSet some{all.file, all.kind, {}};
  for (std::size_t i = 0; i < all.rows.size(); i += step) {
    some.rows.push_back(all.rows[i]);
    some.rows.back().iteration = predict(truth_case(all.kind, all.rows[i]), made).iteration;
  }
  return prepare(std::move(some));
}

/// Collects the paths of all values in an object and its nested objects, except those below `but`.
void add_paths(const json& object, const std::string& before, const std::set<std::string>& but,
               std::map<std::string, json>& paths) {
  for (const auto& [key, value] : object.items()) {
    const std::string path = before + key;
    if (but.contains(path)) continue;
    if (value.is_object()) {
      add_paths(value, path + ".", but, paths);
    } else {
      paths[path] = value;
    }
  }
}

/// The output keeps every key that a cluster file may have, with its value, except the fitted ones. The rows
/// cover one node, so their error does not apply to the network between nodes: that network is still the
/// preset's.
TEST(Calibrate, KeepsOtherKeysOfTheFile) {
  const Sandbox sandbox;
  json base = json::parse(cluster_text("b200:1").substr(0, cluster_text("b200:1").rfind(':')));
  base["software"]["gemm_efficiency"] = 0.6;  // the rows imply 0.4926
  base["software"]["tensor_overlap"] = 0.25;
  base["software"]["shared_cache_factor"] = 1.5;
  base["software"]["source"] = "mine";
  base["gpu"]["share_quantum"] = 2;
  base["gpu"]["saturating_share"] = 0.5;
  base["leaf"] = {{"nodes", 4}, {"oversubscription", 2}};
  base["collectives"] = "ring";
  base["allowance"] = {{"fraction", 0.015}, {"source", "a run"}};
  testing::write_all(sandbox.path("base.json"), base.dump());
  const RunResult result =
      sandbox.run("calibrate --truth traces/ground_truth/llama_b200.csv --cluster base.json --out cal.json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json written = json::parse(testing::read_all(sandbox.path("cal.json")));
  std::set<std::string> changed = {"name", "source", "grade", "fit", "made_by"};
  EXPECT_GE(written["fit"]["parameters"].size(), 1u);
  for (const json& key : written["fit"]["parameters"]) changed.insert(key);
  EXPECT_TRUE(changed.contains("software.gemm_efficiency"));
  std::map<std::string, json> expected;
  std::map<std::string, json> found;
  add_paths(base, "", changed, expected);
  add_paths(written, "", changed, found);
  EXPECT_EQ(found, expected);
  EXPECT_EQ(written["fit"]["of_start"], base["fit"]);
  EXPECT_NE(written["source"].get<std::string>().find("Of base.json: HGX B200 (1000 W)"), std::string::npos);

  const RunResult plan = sandbox.run(
      "plan --planner megatron --model tiny-vlm --data traces/datasets/omni_mix.csv --modalities image --gbs 16 "
      "--cluster cal.json:2 --inter-node-bandwidth 400Gb/s --out plan.json");
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  std::string said = plan.out;
  std::replace(said.begin(), said.end(), '\n', ' ');
  said.erase(std::unique(said.begin(), said.end(), [](char a, char b) { return a == ' ' && b == ' '; }),
             said.end());
  for (const char* part :
       {"which no message achieves",
        "(held-out iteration times of rows of one node: 12 of traces/ground_truth/",
        "parameters, those between nodes among them, are not fitted but taken from base.json: fitted, error "
        "2.1 %",
        "its network between nodes is nominal"}) {
    EXPECT_NE(said.find(part), std::string::npos) << part << '\n' << said;
  }
}

/// Even if the rows imply links twice as fast as the cluster's messages, the fit does not exceed the line
/// rate.
TEST(Calibrate, FitsNoLinkAboveItsLineRate) {
  const ClusterSpec start = find_cluster("b200");
  ClusterSpec made = start;
  made.intra_node.bandwidth_bytes_per_s *= 1.4;
  const std::vector<PreparedSet> sets = {rows_of("llama_b200.csv", 1, made)};
  const RowMask all = {std::vector<bool>(sets[0].runs.size(), true)};
  EXPECT_GT(fit(sets, all, start).intra_node.bandwidth_bytes_per_s,
            1.2 * start.intra_node.bandwidth_bytes_per_s);
  ClusterNotes notes;
  notes.intra_node_line_rate_bytes_per_s = 1.1 * start.intra_node.bandwidth_bytes_per_s;
  const double fitted = fit(sets, all, start, notes).intra_node.bandwidth_bytes_per_s;
  EXPECT_LE(fitted, *notes.intra_node_line_rate_bytes_per_s);
  EXPECT_NEAR(fitted / *notes.intra_node_line_rate_bytes_per_s, 1, 1e-3);
}

TEST(Calibrate, RejectsClustersOfSeveralRows) {
  const Sandbox sandbox;
  json file = json::parse(cluster_text("b200").substr(0, cluster_text("b200").rfind(':')));
  file["nodes"] = {{{"count", 2}, {"gpu", "b200"}}};
  file.erase("gpu");
  testing::write_all(sandbox.path("rows.json"), file.dump());
  const std::string command = "calibrate --truth traces/ground_truth/llama_b200.csv --cluster ";
  testing::expect_error(sandbox.run(command + "rows.json"),
                        {"rows.json", "'nodes'", "expected 'gpu' and 'software'"});
  testing::expect_error(sandbox.run(command + "b200:1+b200:1"),
                        {"expected one preset or file, found several"});
}

TEST(Calibrate, RejectsWrongOptions) {
  const Sandbox sandbox;
  const std::string truth = "calibrate --truth traces/ground_truth/llama_b200.csv --cluster b200 ";
  EXPECT_EQ(sandbox.run(truth + "--folds 1").exit_code, 2);
  EXPECT_EQ(sandbox.run(truth + "--seed -1").exit_code, 2);
  EXPECT_EQ(sandbox.run(truth + "--out missing/folder/c.json").exit_code, 2);
}

TEST(Calibrate, RecoversTheParametersThatMadeTheRows) {
  // The times are predicted by a changed cluster. A fit that starts from the unchanged one must predict them
  // again.
  ClusterSpec made = find_cluster("b200");
  const ClusterSpec start = made;
  made.software.gemm_efficiency *= 1.2;
  made.intra_node.bandwidth_bytes_per_s *= 0.8;
  TruthSet set = read_ground_truth(kFolder + "llama_b200.csv");
  for (TruthRow& row : set.rows) row.iteration = predict(truth_case(set.kind, row), made).iteration;
  const std::vector<PreparedSet> sets = {prepare(std::move(set))};
  const ClusterSpec fitted = fit(sets, {std::vector<bool>(12, true)}, start);
  EXPECT_LT(summarize(time_errors(sets[0].set, predict(sets[0], fitted))).mean, 0.01);
  EXPECT_GT(summarize(time_errors(sets[0].set, predict(sets[0], start))).mean, 0.08);
  EXPECT_NEAR(fitted.software.gemm_efficiency / made.software.gemm_efficiency, 1, 0.05);
  EXPECT_NEAR(fitted.intra_node.bandwidth_bytes_per_s / made.intra_node.bandwidth_bytes_per_s, 1, 0.15);
}

double mean_error(const PreparedSet& set, const ClusterSpec& cluster) {
  return summarize(time_errors(set.set, predict(set, cluster))).mean;
}

/// A cluster that differs in two kernel parameters generates rows of one node. Parameters that do not affect
/// the rows, or that match them just as well at the cluster's own value, stay bit-identical. So does the
/// launch floor, which is below all passes of both clusters. Predictions for multi-node plans, which no row
/// resembles, do not get worse.
TEST(Calibrate, KeepsParametersThatTheRowsDoNotDetermine) {
  const ClusterSpec start = find_cluster("a100-80g");
  ASSERT_EQ(start.software.layer_launch.count(), 0);
  Random random(7);
  for (int round = 0; round < testing::rounds(6); ++round) {
    ClusterSpec made = start;
    made.software.gemm_efficiency *= 0.8 + 0.4 * random.uniform();
    made.software.kernel_overhead *= 0.7 + 0.6 * random.uniform();
    const std::vector<PreparedSet> sets = {rows_of("megatron_a100_single.csv", 40, made)};
    const ClusterSpec fitted = fit(sets, {std::vector<bool>(sets[0].runs.size(), true)}, start);
    EXPECT_LT(mean_error(sets[0], fitted), 0.003);
    EXPECT_EQ(fitted.software.layer_launch, start.software.layer_launch);
    EXPECT_EQ(fitted.inter_node, start.inter_node);
    const PreparedSet others = rows_of("megatron_a100_multi.csv", 9, made);
    EXPECT_LE(mean_error(others, fitted), mean_error(others, start) + 0.003) << round;
  }
}

/// The starting cluster has zero launch time, and the rows were made with 2 ms.
TEST(Calibrate, FindsATimeThatTheClusterLeavesAtZero) {
  ClusterSpec start = find_cluster("a100-80g-vtrain");
  start.software.layer_launch = Seconds(0);
  ClusterSpec made = start;
  made.software.layer_launch = Seconds(2e-3);
  const std::vector<PreparedSet> sets = {rows_of("megatron_a100_single.csv", 30, made)};
  const ClusterSpec fitted = fit(sets, {std::vector<bool>(sets[0].runs.size(), true)}, start);
  EXPECT_NEAR(fitted.software.layer_launch.count(), 2e-3, 2e-5);
  EXPECT_EQ(fitted.intra_node, start.intra_node);
  EXPECT_EQ(fitted.software.memory_efficiency, start.software.memory_efficiency);
}

/// Returns iterations of a uniform plan on one node, each with other samples, timed by `cluster`.
TimelineFile recorded_on(const ClusterSpec& cluster, const ModelSpec& model, int pp) {
  Plan plan;
  plan.layout = Layout::uniform;
  plan.gbs = 16;
  plan.microbatches = 4;
  plan.encoder = plan.llm = {2, pp, 4 / pp, {}};
  plan.encoder.layers = split_layers(model.encoder.layers, pp);
  plan.llm.layers = split_layers(model.llm.layers, pp);
  const AnalyticCostModel cost(model, cluster);
  Random random(static_cast<std::uint64_t>(pp));
  TimelineFile file;
  for (int iteration = 0; iteration < 6; ++iteration) {
    std::vector<Sample> batch(16);
    Assignment assignment{plan.microbatches, plan.llm.dp, {}};
    for (int i = 0; i < 16; ++i) {
      const auto tiles = static_cast<std::int64_t>(1 + random.below(9));
      batch[i].encoder_sequences = {{tiles, 729, 729 * 729}};
      batch[i].llm_tokens = 729 * tiles / 4 + static_cast<std::int64_t>(random.below(800));
      assignment.bin.push_back(i % plan.bins());
    }
    file.iterations.push_back(
        SimExecutor().run(make_iteration({model, cluster, cost}, plan, batch, assignment), Detail::spans));
  }
  return file;
}

/// The cluster that made the recordings differs from the one where the fit starts.
TEST(Calibrate, RecoversTheParametersThatMadeRecordings) {
  const Sandbox sandbox;
  const ModelSpec model = find_model("llava-ov-llama3-8b");
  const ClusterSpec start = find_cluster("a100-80g-vtrain:1");
  ClusterSpec made = start;
  made.software.gemm_efficiency *= 0.7;
  made.software.memory_efficiency *= 0.8;
  std::vector<PreparedSet> sets;
  RowMask all;
  for (const int pp : {1, 2}) {
    const std::string path = sandbox.path("run" + std::to_string(pp) + ".json");
    testing::write_all(path, to_json(recorded_on(made, model, pp)));
    sets.push_back(prepare_recording(path, model));
    ASSERT_EQ(sets.back().runs.size(), 6U);
    all.emplace_back(6, true);
    // The cluster that made a recording predicts it, up to the rounding of durations.
    EXPECT_LT(summarize(time_errors(sets.back().set, predict(sets.back(), made))).max, 1e-6);
  }
  const ClusterSpec fitted = fit(sets, all, start);
  for (const PreparedSet& set : sets) {
    EXPECT_GT(summarize(time_errors(set.set, predict(set, start))).mean, 0.15);
    EXPECT_LT(summarize(time_errors(set.set, predict(set, fitted))).mean, 0.01);
  }
  EXPECT_NEAR(fitted.software.gemm_efficiency / made.software.gemm_efficiency, 1, 0.1);
}

TEST(Calibrate, TakesLiveRecordings) {
  const Sandbox sandbox;
  const RunResult trained = sandbox.run("train --model tiny-vlm --steps 6 --gbs 4 --record run.json.gz");
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const std::string command = "calibrate --cluster a100-80g-vtrain --trace run.json.gz ";
  const RunResult result = sandbox.run(command + "--model tiny-vlm --format json --out host.json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json set = json::parse(result.out)["sets"][0];
  EXPECT_EQ(set["file"], "run.json.gz");
  EXPECT_EQ(set["rows"], 6);
  const std::string other = command + "--model llava-ov-llama3-8b";
  testing::expect_error(sandbox.run(other),
                        {"run.json.gz: made with other inputs than --model: model tiny-vlm", "--mixed"});
  const testing::RunResult mixed = sandbox.run(other + " --mixed");
  EXPECT_EQ(mixed.exit_code, 2);
  EXPECT_NE(mixed.err.find("iterations[0]: expected the 32 LLM layers of 'llava-ov-llama3-8b', found 2"),
            std::string::npos)
      << mixed.err;
  testing::expect_error(sandbox.run(command), {"option '--model'", "give both options or neither"});
  testing::expect_error(sandbox.run("calibrate --cluster a100-80g-vtrain --model tiny-vlm"),
                        {"option '--model'"});
  testing::expect_error(sandbox.run("calibrate --cluster a100-80g"), {"expected measurements"});
  testing::expect_error(sandbox.run(command + "--model tiny-vlm --out run.json.gz"),
                        {"'run.json.gz' is also the file of '--trace'"});
}

TEST(Calibrate, EstimatesAreCloseToSimulations) {
  const ClusterSpec cluster = find_cluster("a100-80g-vtrain");
  const TruthSet set = read_ground_truth(kFolder + "megatron_a100_multi.csv");
  for (const TruthRow& row : set.rows) {
    const TruthCase run = truth_case(set.kind, row);
    const Program program = truth_program(run);
    const double ratio = estimate(run, skeleton(program), cluster) / predict(run, program, cluster).iteration;
    EXPECT_NEAR(ratio, 1, 0.05) << "row " << row.row;
  }
}

}  // namespace calibrate_test
}  // namespace dflop
