// dflop sweep: cells compared with the equivalent commands, shards, and the cells that a longer spec adds.
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "costmodel/analytic/flops.hpp"
#include "experiments/presets/presets.hpp"
#include "experiments/studies/data.hpp"
#include "experiments/sweep/sqlite.hpp"
#include "tests/cli/sweep_fixture.hpp"
#include "traces/files/provenance.hpp"

namespace dflop {
namespace sweep_test {

using nlohmann::json;
using testing::RunResult;

class SweepCells : public testing::SweepTest {
 protected:
  json one_json(const std::string& arguments) const {
    const RunResult result = sandbox_.run(arguments);
    EXPECT_EQ(result.exit_code, 0) << arguments << "\n" << result.err;
    return testing::rows_of(result.out);
  }

  /// Writes a100-80g-vtrain with slower links, as a user would.
  void write_cluster(double intra, double inter) const {
    json cluster = json::parse(testing::read_all(std::string(DFLOP_SOURCE_DIR) +
                                                 "/experiments/presets/clusters/a100-80g-vtrain.json"));
    const auto scale = [&](const char* link, double factor) {
      json& bandwidth = cluster[link]["bandwidth_bytes_per_s"];
      bandwidth = bandwidth.get<double>() * factor;
    };
    scale("intra_node", intra);
    scale("inter_node", inter);
    if (cluster["software"].contains("node_ring_bandwidth_bytes_per_s")) {
      json& bandwidth = cluster["software"]["node_ring_bandwidth_bytes_per_s"];
      bandwidth = bandwidth.get<double>() * inter;
    }
    write("slower.json", cluster);
  }

  /// Expects the cell's row to match plan, schedule and simulate.
  void expect_as_by_hand(const json& row) const {
    write_cluster(row["intra_node_bandwidth"], row["inter_node_bandwidth"]);
    const auto text = [&](const char* key) { return row[key].get<std::string>(); };
    const auto number = [&](const char* key) { return std::to_string(row[key].get<int>()); };
    const std::string chunked = text("pipeline_schedule");
    const std::size_t colon = chunked.find(':');
    const std::string order =
        chunked == "default"
            ? ""
            : " --pipeline-schedule " + chunked.substr(0, colon) +
                  (colon == std::string::npos ? "" : " --chunks " + chunked.substr(colon + 1));
    const std::string recompute = text("recompute") == "default" ? "" : " --recompute " + text("recompute");
    const std::string scheduler = text("planner") == "search" ? " --scheduler lpt --budget 20000" : "";
    const std::string data = " --data " + text("data") + " --iterations " + number("iterations") +
                             " --seed " + number("seed") +
                             (text("modalities") == "all" ? "" : " --modalities " + text("modalities"));
    one_json("plan --format json --out p.json --model " + text("model") +
             " --cluster ./slower.json:" + number("nodes") + " --gbs " + number("gbs") + " --planner " +
             text("planner") + scheduler + recompute + order + data);
    const json schedule =
        one_json("schedule --format json --plan p.json --out s.json --scheduler " + text("scheduler") + data);
    const json result =
        one_json("simulate --format json --plan p.json --schedule s.json --seed " + number("seed") + " " +
                 (text("conditions") == "none" ? "" : text("conditions")));
    for (const char* key : {"iteration_s_mean", "iteration_s_p95", "samples_per_s", "llm_tokens_per_s", "mfu",
                            "idle_fraction", "peak_memory_bytes"}) {
      EXPECT_EQ(row[key], result[key]) << key << " of " << row;
    }
    double gap = 0;
    for (const json& iteration : schedule) gap += iteration["gap"].get<double>();
    EXPECT_EQ(row["schedule_gap"].get<double>(), gap / static_cast<double>(schedule.size()));
  }
};

TEST_F(SweepCells, EqualPlanScheduleAndSimulate) {
  const json counts =
      sweep(spec({{"nodes", {1, 2}},
                  {"intra_node_bandwidth", {1, 0.5}},
                  {"inter_node_bandwidth", {0.25}},
                  {"modalities", {"all", "text,image"}},
                  {"seed", {7}},
                  {"planner", {"dflop-expected", "megatron"}},
                  {"pipeline_schedule", {"zb-h1", "interleaved:2"}},
                  {"recompute", {"selective"}},
                  {"scheduler", {"random"}},
                  {"conditions",
                   {"none", "--slow rank=0:1.5 --jitter 0.1 --network contention", "--collectives ring"}}}),
            "a.sqlite");
  EXPECT_EQ(counts["cells"], 96);
  // The planner dflop-expected rejects interleaved schedules.
  std::size_t compared = 0;
  for (const json& row : rows("a.sqlite")) {
    EXPECT_EQ(row["status"], row["planner"] == "dflop-expected" && row["pipeline_schedule"] == "interleaved:2"
                                 ? "failed"
                                 : "ok")
        << row;
    if (row["status"] != "ok" || compared % 7 != 0) {  // checks only some
      compared += row["status"] == "ok" ? 1 : 0;
      continue;
    }
    ++compared;
    expect_as_by_hand(row);
  }
  EXPECT_EQ(compared, 72U);
}

// The search plans with lpt's microbatches, whichever scheduler the cell then uses.
TEST_F(SweepCells, SearchPlansWithLptWhateverTheScheduler) {
  sweep(spec({{"planner", {"search"}}, {"scheduler", {"lpt", "auto"}}, {"options", {"--budget 20000"}}}),
        "a.sqlite");
  const json cells = rows("a.sqlite");
  ASSERT_EQ(cells.size(), 2U);
  EXPECT_EQ(cells[0]["plan"], cells[1]["plan"]);
  for (const json& row : cells) expect_as_by_hand(row);
}

TEST_F(SweepCells, TakeSamplesLikeTheirRecords) {
  ASSERT_EQ(
      sandbox_.run("data --data small.csv --model llava-ov-llama3-8b --samples-out samples.json").exit_code,
      0);
  sweep(spec({{"data", {"small.csv", "samples.json"}}}), "a.sqlite");
  const json cells = rows("a.sqlite");
  ASSERT_EQ(cells.size(), 2U);
  EXPECT_EQ(cells[0]["status"], "ok") << cells[0];
  for (const char* key : {"status", "iteration_s_mean", "llm_tokens_per_s", "peak_memory_bytes"})
    EXPECT_EQ(cells[0][key], cells[1][key]) << key;
  std::string bad = testing::read_all(sandbox_.path("samples.json"));
  bad.replace(bad.find("llm_tokens"), 10, "llm_number");
  testing::write_all(sandbox_.path("bad.json"), bad);
  write("spec.json", spec({{"data", {"bad.json"}}}));
  testing::expect_error(sandbox_.run("sweep --spec spec.json --out b.sqlite"), {"bad.json", "llm_number"});
}

// A batch of 16 takes each of two records 8 times, so its mean and deviation equal the two records':
// for a and b they are (a + b) / 2 and |a - b| / 2. Without images nothing is encoded.
TEST_F(SweepCells, DescribeTheData) {
  std::istringstream lines(testing::read_all(sandbox_.path("small.csv")));
  std::string header;
  std::getline(lines, header);
  testing::write_all(sandbox_.path("text.csv"),
                     header + "\nx,s,,text,,,,,,,,,2,0,100,100\ny,s,,text,,,,,,,,,2,0,700,700\n");
  testing::write_all(
      sandbox_.path("images.csv"),
      header + "\nx,s,,image,m,1,640x480,,,,,,2,10,7,17\ny,s,,image,m,1,640x480,,,,,,2,10,7,17\n");
  sweep(spec({{"data", {"images.csv", "text.csv"}}}), "a.sqlite");
  const json all = rows("a.sqlite");
  ASSERT_EQ(all.size(), 2U);
  const ModelSpec model = find_model("llava-ov-llama3-8b");
  const double a = llm_flop(model, Workload{1, 100, 100 * 100}).count;
  const double b = llm_flop(model, Workload{1, 700, 700 * 700}).count;
  EXPECT_EQ(all[1]["flop_ratio"], 0.0);
  EXPECT_NEAR(all[1]["heterogeneity"].get<double>(), (b - a) / (b + a), 1e-9);

  PreprocessOptions options;
  options.rule = model.preprocess;
  options.max_tokens = model.max_tokens;
  const Sample image = load_samples(sandbox_.path("images.csv").string(), options).front();
  EXPECT_DOUBLE_EQ(all[0]["flop_ratio"],
                   encoder_flop(model, image.encoder()).count / llm_flop(model, image.llm()).count);
  EXPECT_NEAR(all[0]["heterogeneity"].get<double>(), 0, 1e-6);
}

TEST_F(SweepCells, ThatDoNotFitOrFailAreResults) {
  const json both = spec({{"model", {"llava-ov-llama3-8b", "llava-ov-qwen2.5-72b"}},
                          {"conditions", {"none", "--slow rank=700:2", "--fail rank=0:0.001"}}});
  write("spec.json", both);
  const RunResult result = sandbox_.run("sweep --spec spec.json --out a.sqlite --format csv");
  EXPECT_EQ(result.exit_code, 1);  // some failed
  // 8B: one cell runs, one names a rank that does not exist, one does not end. 72B: there is no plan in any
  // cell.
  EXPECT_EQ(result.out, "cells,finished_before,run,ok,infeasible,failed\n6,0,6,1,4,1\n");
  for (const json& row : rows("a.sqlite")) {
    const bool large = row["model"] != "llava-ov-llama3-8b";
    const std::string conditions = row["conditions"];
    const std::string reason = row["reason"].is_null() ? "" : row["reason"];
    if (large) {
      EXPECT_EQ(row["status"], "infeasible");
      EXPECT_NE(reason, "");
      EXPECT_TRUE(row["plan"].is_null());
    } else if (conditions == "none") {
      EXPECT_EQ(row["status"], "ok");
    } else if (conditions[2] == 's') {
      EXPECT_EQ(row["status"], "failed");
      EXPECT_NE(reason.find("rank=700"), std::string::npos) << reason;
    } else {
      EXPECT_EQ(row["status"], "infeasible");
      EXPECT_NE(reason.find("does not finish"), std::string::npos) << reason;
    }
    if (!(row["status"] == "ok")) {
      EXPECT_TRUE(row["samples_per_s"].is_null());
    }
  }
  EXPECT_EQ(sweep(both, "a.sqlite")["run"], 0);
  EXPECT_EQ(sweep(both, "a.sqlite", "--retry-failed")["run"], 1);
}

TEST_F(SweepCells, AreExcludedWhereAllNamedAxesMatch) {
  json text =
      spec({{"planner", {"dflop", "megatron"}}, {"scheduler", {"lpt", "random"}}, {"seed", {1, 2, 3}}});
  text["exclude"] = {{{"planner", {"megatron"}}, {"scheduler", {"lpt"}}}, {{"seed", {2, 3}}}};
  EXPECT_EQ(sweep(text, "a.sqlite")["cells"], 3);  // for seed 1, all four except megatron with lpt
  for (const json& row : rows("a.sqlite")) {
    EXPECT_EQ(row["seed"], 1);
    EXPECT_TRUE(row["planner"] == "dflop" || row["scheduler"] == "random");
  }
}

TEST_F(SweepCells, OfALongerSpecAreAdded) {
  EXPECT_EQ(sweep(spec({{"seed", {1, 3}}}), "a.sqlite")["run"], 2);
  const json counts = sweep(spec({{"seed", {3, 2, 1}}, {"gbs", {16, 24}}}), "a.sqlite");
  EXPECT_EQ(counts["cells"], 6);
  EXPECT_EQ(counts["finished_before"], 2);
  EXPECT_EQ(counts["run"], 4);
  sweep(spec({{"seed", {1, 2, 3}}, {"gbs", {16, 24}}}), "b.sqlite");
  EXPECT_EQ(csv("a.sqlite"), csv("b.sqlite"));
}

TEST_F(SweepCells, OfShardsMakeTheWhole) {
  const json text = spec({{"seed", {1, 2, 3, 4, 5}}, {"scheduler", {"lpt", "random"}}, {"gbs", {16, 20}}});
  sweep(text, "whole.sqlite");
  std::string files;
  int cells = 0;
  for (int i = 1; i <= 3; ++i) {
    const std::string part = std::to_string(i) + ".sqlite";
    cells += sweep(text, part, "--shard " + std::to_string(i) + "/3")["run"].get<int>();
    files += part + " ";
  }
  EXPECT_EQ(cells, 20);
  EXPECT_EQ(rows(files).size(), 20U);
  EXPECT_EQ(csv(files), csv("whole.sqlite"));
  EXPECT_EQ(csv("whole.sqlite " + files), csv("whole.sqlite"));  // a cell in two files counts once
  // All run at once into one file that does not exist yet.
  const RunResult together =
      sandbox_.run("--version; for i in 1 2 3; do " DFLOP_BINARY
                   " sweep --spec spec.json --out one.sqlite --shard $i/3 & done; wait; true");
  EXPECT_EQ(together.err.find("error"), std::string::npos) << together.err;
  EXPECT_EQ(csv("one.sqlite"), csv("whole.sqlite"));
}

TEST_F(SweepCells, ReadBackFromCsvAsFromJson) {
  sweep(spec({{"seed", {1, 2}}, {"modalities", {"text,image"}}}), "a.sqlite");
  std::istringstream lines(csv("a.sqlite"));
  std::vector<std::vector<std::string>> table;
  for (std::string line; std::getline(lines, line);) {
    table.emplace_back(1);
    bool quoted = false;
    for (const char c : line) {
      if (c == '"') {
        quoted = !quoted;
      } else if (c == ',' && !quoted) {
        table.back().emplace_back();
      } else {
        table.back().back() += c;
      }
    }
  }
  const json all = rows("a.sqlite");
  ASSERT_EQ(table.size(), all.size() + 1);
  for (std::size_t r = 0; r < all.size(); ++r) {
    ASSERT_EQ(table[r + 1].size(), all[r].size());
    for (std::size_t c = 0; c < table[0].size(); ++c) {
      const json& value = all[r][table[0][c]];
      const std::string& text = table[r + 1][c];
      if (value.is_number()) {
        EXPECT_EQ(std::stod(text), value.get<double>()) << table[0][c];
      } else {
        EXPECT_EQ(text, value.is_null() ? "" : value.get<std::string>()) << table[0][c];
      }
    }
  }
  EXPECT_FALSE(all[0].contains("wall_s"));
  EXPECT_GT(rows("a.sqlite", "--measured")[0]["wall_s"], 0.0);
  EXPECT_EQ(rows("a.sqlite", "--where seed=2").size(), 1U);
}

// A planner that does not choose recomputation itself uses more of it than it needs. A note says so, and with
// --best-parts the planner chooses it.
TEST_F(SweepCells, PlannersChooseFreePartsOnRequest) {
  write("spec.json", spec({{"planner", {"dflop-expected", "pytorch"}},
                           {"options", {"default", "--best-parts"}},
                           {"gbs", {32}}}));
  const RunResult run = sandbox_.run("sweep --spec spec.json --out s.sqlite");
  EXPECT_NE(run.err.find("note: dflop-expected use the given recomputation"), std::string::npos) << run.err;
  std::map<std::string, double> rates;
  for (const auto& cell : rows("s.sqlite")) {
    if (cell["planner"] == "dflop-expected") rates[cell["options"]] = cell["samples_per_s"];
  }
  EXPECT_GT(rates["--best-parts"], rates["default"]);
}

TEST_F(SweepCells, OptionsAreAnAxis) {
  // With a cap of one token no schedule is feasible. This affects only cells with the cap.
  sweep(
      spec({{"options", {"default", "--respect-memory", "--token-cap 1"}}, {"scheduler", {"lpt", "random"}}}),
      "a.sqlite");
  const nlohmann::json cells = rows("a.sqlite");
  ASSERT_EQ(cells.size(), 6u);
  for (const auto& cell : cells) {
    EXPECT_EQ(cell["status"], cell["options"] == "--token-cap 1" ? "infeasible" : "ok") << cell;
  }
}

TEST_F(SweepCells, ChangedDataKeepUnaffectedCells) {
  testing::write_all(sandbox_.path("other.csv"), testing::read_all(sandbox_.path("small.csv")));
  const nlohmann::json text = spec({{"data", {"small.csv", "other.csv"}}});
  EXPECT_EQ(sweep(text, "a.sqlite")["ok"], 2);
  std::string changed = testing::read_all(sandbox_.path("other.csv"));
  changed.resize(changed.rfind('\n', changed.size() - 2) + 1);  // without the last record
  testing::write_all(sandbox_.path("other.csv"), changed);
  testing::expect_error(sandbox_.run("sweep --spec spec.json --out a.sqlite"),
                        {"the contents of 'other.csv' have changed since", "--redo-changed"});
  const nlohmann::json counts = sweep(text, "a.sqlite", "--redo-changed");
  EXPECT_EQ(counts["finished_before"], 1);
  EXPECT_EQ(counts["run"], 1);
  EXPECT_EQ(sweep(text, "a.sqlite")["finished_before"], 2);
}

TEST_F(SweepCells, NameTheirDflopVersion) {
  sweep(spec(), "a.sqlite");
  Database database(sandbox_.path("a.sqlite").string(), Database::Mode::read);
  Statement made(database, "SELECT made_by FROM cells JOIN runs USING (run)");
  ASSERT_TRUE(made.step());
  const auto made_by = parse_provenance(plain_text(made.column(0)), "runs");
  ASSERT_TRUE(made_by);
  EXPECT_EQ(made_by->command.substr(0, 12), "dflop sweep ");
}

TEST_F(SweepCells, ReasonsComeLast) {
  sweep(spec({{"options", {"--token-cap 1"}}}), "a.sqlite");
  const std::string table = csv("a.sqlite");
  const std::string head = table.substr(0, table.find_first_of("\r\n"));
  EXPECT_EQ(head.substr(head.rfind(',') + 1), "reason");
}

}  // namespace sweep_test
}  // namespace dflop
