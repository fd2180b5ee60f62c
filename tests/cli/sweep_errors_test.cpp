// Bad specs and databases give one error that names the place.
#include <gtest/gtest.h>
#include <unistd.h>

#include "experiments/sweep/sqlite.hpp"
#include "experiments/sweep/store.hpp"
#include "tests/cli/sweep_fixture.hpp"

namespace dflop {
namespace sweep_errors_test {

using nlohmann::json;
using testing::expect_error;
using testing::RunResult;

class SweepErrors : public testing::SweepTest {
 protected:
  void expect_refused(const json& text, const std::vector<std::string>& parts) const {
    write("spec.json", text);
    expect_error(sandbox_.run("sweep --spec spec.json --out a.sqlite"), parts);
    EXPECT_FALSE(sandbox_.has("a.sqlite"));
  }

  /// Expects that the spec is rejected with these values for one axis.
  void expect_refused(const char* axis, const json& values, const std::vector<std::string>& parts) const {
    std::vector<std::string> all = {"spec.json: key 'axes." + std::string(axis)};
    all.insert(all.end(), parts.begin(), parts.end());
    expect_refused(spec({{axis, values}}), all);
  }

  RunResult run_into(const std::string& file) const {
    return sandbox_.run("sweep --spec spec.json --out " + file);
  }
};

TEST_F(SweepErrors, InValues) {
  expect_refused("model", {"gpt"}, {"axes.model[0]", "unknown model 'gpt'", "llava-ov-llama3-8b"});
  expect_refused("model", {""}, {"not empty"});
  expect_refused("cluster", {"a100-80g", "a100-80g-vtrain:4"}, {"axes.cluster[1]", "a100-80g-vtrain:4"});
  expect_refused("nodes", {4097}, {"from 1 to 4096", "4097"});
  expect_refused("nodes", {1, 2, 1}, {"axes.nodes[2]", "each value once", "1"});
  expect_refused("nodes", json::array(), {"at least one value"});
  expect_refused("nodes", 2, {"expected an array", "2"});
  expect_refused("gbs", {0}, {"axes.gbs[0]", "found 0"});
  expect_refused("gbs", {1.5}, {"1.5"});
  expect_refused(spec({{"gbs", {16, 65536}}, {"iterations", {1, 62}}}),  // 65536 x 62 = 4,063,232
                 {"key 'axes.iterations'", "at most 4000000 samples", "62 iterations of gbs 65536"});
  expect_refused("seed", {-1}, {"axes.seed[0]", "-1"});
  expect_refused("data", {"missing.csv"}, {"axes.data[0]", "missing.csv"});
  expect_refused("modalities", {"image,sound"}, {"axes.modalities[0]", "image,sound"});
  expect_refused("planner", {"best"}, {"axes.planner[0]", "best", "megatron"});
  expect_refused("scheduler", {"best"}, {"axes.scheduler[0]", "best", "lpt"});
  expect_refused("pipeline_schedule", {"2f2b"}, {"axes.pipeline_schedule[0]", "2f2b"});
  expect_refused("pipeline_schedule", {"interleaved"}, {"--chunks"});
  expect_refused("recompute", {"some"}, {"axes.recompute[0]", "some"});
  expect_refused("inter_node_bandwidth", {0}, {"axes.inter_node_bandwidth[0]", "found 0"});
  expect_refused("conditions", {"--slow rank=x:2"}, {"axes.conditions[0]", "--slow", "rank=x:2"});
  expect_refused(
      "conditions", {"--slow \\x"},
      {"axes.conditions[0]", "as typed in a shell, found '--slow \\x'", "unknown escape sequence"});
  expect_refused("conditions", {"--fast"}, {"axes.conditions[0]", "--fast"});
  expect_refused("conditions", {"--seed 2"}, {"--seed", "an axis 'seed'"});
  expect_refused("conditions", {"--slow gpu=each:2 --repeat 2"}, {"--repeat", "gpu=each"});
}

TEST_F(SweepErrors, InOptionsOfCells) {
  expect_refused("options", {"--respect-memry"}, {"axes.options[0]", "--respect-memry"});
  expect_refused("options", {"--scheduler lpt"}, {"axes.options[0]", "'--scheduler' is an axis of its own"});
  expect_refused("options", {"--recompute=full"}, {"'--recompute' is an axis of its own"});
  expect_refused("options", {"--time-limit 1"}, {"'--time-limit'", "differ from machine to machine"});
  expect_refused("options", {"--token-cap none"}, {"axes.options[0]", "--token-cap"});
}

TEST_F(SweepErrors, OptionsOfTheSearchForOtherPlanners) {
  const json axes = {{"planner", {"dflop", "search"}}, {"options", {"default", "--layout uniform --tp 4"}}};
  expect_refused(spec(axes), {"axes.options", "'--layout'", "found 'dflop'", "'exclude'"});
  json text = spec(axes);
  text["exclude"] = {{{"planner", {"dflop"}}, {"options", {"--layout uniform --tp 4"}}}};
  write("spec.json", text);
  ASSERT_EQ(sandbox_.run("sweep --spec spec.json --out search.sqlite").exit_code, 0);
  const RunResult cells = sandbox_.run("sweep export --db search.sqlite --format json");
  int uniform = 0;
  for (const json& cell : testing::rows_of(cells.out)) {
    const bool wished = cell["options"] != "default";
    uniform += wished ? 1 : 0;
    EXPECT_EQ(cell["plan"].get<std::string>().starts_with("tp4"), wished) << cell;
  }
  EXPECT_GT(uniform, 0) << "cells of the search";
  expect_refused("options", {"--seed-plans none.json"}, {"axes.options[0]", "'--seed-plans' is not allowed"});
}

TEST_F(SweepErrors, ATextInPlaceOfANumber) {
  write("spec.json", spec());
  ASSERT_EQ(run_into("edited.sqlite").exit_code, 0);
  Database(sandbox_.path("edited.sqlite"), Database::Mode::write).execute("UPDATE cells SET mfu = 'abc'");
  for (const char* command : {"plot --x gbs --y mfu --out e.svg", "export", "report --out e.html"}) {
    expect_error(sandbox_.run("sweep " + std::string(command) + " --db edited.sqlite"),
                 {"edited.sqlite", "column 'mfu'", "found 'abc'"});
  }
}

TEST_F(SweepErrors, ABadRecordFailsOnceBeforeAnyCell) {
  std::string text = testing::read_all(sandbox_.path("small.csv"));
  const std::size_t row = text.find('\n', text.find('\n') + 1) + 1;  // the header is row 1, this is row 3
  text.replace(row, text.find('\n', row) - row, "not,a,record");
  testing::write_all(sandbox_.path("bad.csv"), text);
  expect_refused("data", {"small.csv", "bad.csv"}, {"axes.data[1]", "bad.csv", "row 3"});
  EXPECT_FALSE(sandbox_.has("a.sqlite"));
}

TEST_F(SweepErrors, NodesForAClusterWithItsOwnNodes) {
  json text = spec({{"cluster", {"a100-80g:1+h100:1"}}});
  text["axes"].erase("nodes");
  write("spec.json", text);
  const RunResult result = sandbox_.run("sweep --spec spec.json --out mixed.sqlite");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const RunResult cells = sandbox_.run("sweep export --db mixed.sqlite --format json");
  ASSERT_EQ(cells.exit_code, 0) << cells.err;
  EXPECT_EQ(testing::rows_of(cells.out).at(0)["nodes"], 2) << cells.out;
  expect_refused(spec({{"cluster", {"a100-80g:1+h100:1"}}, {"nodes", {2}}}),
                 {"axes.nodes", "'a100-80g:1+h100:1', which already gives it"});
}

TEST_F(SweepErrors, InKeys) {
  expect_refused("node", {1}, {"unknown key", "nodes"});
  json text = spec();
  text["axis"] = 1;
  expect_refused(text, {"spec.json: key 'axis'", "unknown key"});
  text = spec();
  text["axes"].erase("gbs");
  expect_refused(text, {"axes.gbs", "expected this key"});
  text = spec();
  text["version"] = 2;
  expect_refused(text, {"newer"});
  text = spec();
  text["exclude"] = {{{"nodes", {1}}}};
  expect_refused(text, {"exclude", "all excluded"});
  text["exclude"] = {{{"nodes", {3}}}};
  expect_refused(text, {"exclude[0].nodes[0]", "axis 'nodes'", "3"});
  text["exclude"] = {{{"node", {3}}}};
  expect_refused(text, {"exclude[0].node", "unknown key"});
  text["exclude"] = json::array({json::object()});
  expect_refused(text, {"exclude[0]", "at least one axis"});
  std::vector<int> many(400);
  for (int i = 0; i < 400; ++i) many[static_cast<std::size_t>(i)] = i + 1;
  expect_refused(spec({{"nodes", many}, {"seed", many}}), {"'axes'", "at most 100000 cells"});
}

TEST_F(SweepErrors, InOptions) {
  write("spec.json", spec());
  for (const char* bad : {"0/2", "3/2", "1", "1/", "/2", "1/2/3", "x/2"}) {
    expect_error(sandbox_.run(std::string("sweep --spec spec.json --out a.sqlite --shard ") + bad),
                 {"--shard", bad});
  }
  expect_error(sandbox_.run("sweep --spec spec.json --out spec.json"), {"--out", "--spec"});
  expect_error(sandbox_.run("sweep export --db none.sqlite"), {"none.sqlite", "no such file"});
  EXPECT_FALSE(sandbox_.has("none.sqlite"));
  ASSERT_EQ(run_into("a.sqlite").exit_code, 0);
  expect_error(sandbox_.run("sweep export --db a.sqlite --where nodes=7"), {"--where", "nodes=7"});
  expect_error(sandbox_.run("sweep export --db a.sqlite --where mfu=7"), {"--where", "mfu=7"});
  const std::string plot = "sweep plot --db a.sqlite --out p.svg ";
  expect_error(sandbox_.run(plot + "--x gb"), {"--x", "gb"});
  expect_error(sandbox_.run(plot + "--y plan"), {"--y", "plan"});
  expect_error(sandbox_.run("sweep plot --db a.sqlite --out a.sqlite"), {"--out", "--db"});
  EXPECT_FALSE(sandbox_.has("p.svg"));
}

TEST_F(SweepErrors, InDatabases) {
  write("spec.json", spec());
  expect_error(run_into("missing/a.sqlite"), {"missing/a.sqlite"});
  expect_error(run_into("."), {"directory"});
  expect_error(run_into("/dev/null"), {"/dev/null", "regular file"});
  const std::string text(5000, 'x');
  testing::write_all(sandbox_.path("text"), text);
  expect_error(run_into("text"), {"text", "found another kind of file"});
  EXPECT_EQ(testing::read_all(sandbox_.path("text")), text);
  expect_error(sandbox_.run("sweep export --db text"), {"text", "found another kind of file"});
  testing::write_all(sandbox_.path("empty"), "");
  expect_error(sandbox_.run("sweep export --db empty"), {"empty", "database of 'dflop sweep'"});

  Database(sandbox_.path("other.sqlite").string(), Database::Mode::write).execute("CREATE TABLE t (x)");
  expect_error(run_into("other.sqlite"), {"other.sqlite", "database of 'dflop sweep'"});

  ASSERT_EQ(run_into("a.sqlite").exit_code, 0);
  const std::string path = sandbox_.path("a.sqlite").string();
  Database(path, Database::Mode::write).execute("PRAGMA user_version = 3");
  expect_error(run_into("a.sqlite"), {"a.sqlite", "version 2, found 3"});
  Database(path, Database::Mode::write)
      .execute(
          "PRAGMA user_version = 2; UPDATE inputs SET fingerprint = 'old' "
          "WHERE name = 'dflop'");
  expect_error(run_into("a.sqlite"), {"a.sqlite", "made by dflop old"});
}

TEST_F(SweepErrors, InAWriteProtectedDatabase) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write to everything";
  write("spec.json", spec());
  ASSERT_EQ(run_into("a.sqlite").exit_code, 0);
  std::filesystem::permissions(sandbox_.path("a.sqlite"), std::filesystem::perms::owner_read);
  expect_error(run_into("a.sqlite"), {"a.sqlite", "write-protected"});
  EXPECT_EQ(sandbox_.run("sweep export --db a.sqlite").exit_code, 0);
}

TEST_F(SweepErrors, ChangedInputs) {
  write("spec.json", spec());
  ASSERT_EQ(run_into("a.sqlite").exit_code, 0);
  const std::string text = testing::read_all(sandbox_.path("small.csv"));
  testing::write_all(sandbox_.path("small.csv"), text.substr(0, text.rfind('\n', text.size() - 2) + 1));
  expect_error(run_into("a.sqlite"), {"a.sqlite", "the contents of 'small.csv' have changed"});
  ASSERT_EQ(run_into("b.sqlite").exit_code, 0);
  expect_error(sandbox_.run("sweep export --db a.sqlite b.sqlite"),
               {"b.sqlite", "the contents of 'small.csv' have changed"});
}

TEST_F(SweepErrors, ContradictoryFiles) {
  write("spec.json", spec());
  ASSERT_EQ(run_into("a.sqlite").exit_code, 0);
  ASSERT_EQ(run_into("b.sqlite").exit_code, 0);
  const std::string path = sandbox_.path("b.sqlite").string();
  // Measured values may differ.
  Database(path, Database::Mode::write).execute("UPDATE cells SET wall_s = 100");
  EXPECT_EQ(rows("a.sqlite b.sqlite").size(), 1U);
  Database(path, Database::Mode::write).execute("UPDATE cells SET mfu = mfu + 1e-12");
  expect_error(sandbox_.run("sweep export --db a.sqlite b.sqlite"),
               {"b.sqlite", "its result for {\"model\":"});
  // A failure in one file counts less than a result in another.
  Database(path, Database::Mode::write).execute("UPDATE cells SET status = 'failed'");
  EXPECT_EQ(csv("a.sqlite b.sqlite"), csv("a.sqlite"));
  EXPECT_EQ(csv("b.sqlite a.sqlite"), csv("a.sqlite"));
  // If a cell failed in all files, the reason comes from the first file.
  Database(path, Database::Mode::write).execute("UPDATE cells SET reason = 'of b'");
  Database(sandbox_.path("a.sqlite").string(), Database::Mode::write)
      .execute("UPDATE cells SET status = 'failed', reason = 'of a'");
  EXPECT_EQ(rows("a.sqlite b.sqlite")[0]["reason"], "of a");
  EXPECT_EQ(rows("b.sqlite a.sqlite")[0]["reason"], "of b");
}

}  // namespace sweep_errors_test
}  // namespace dflop
