// dflop simulate --explain and --html, and the memory of the fullest rank, as a user sees them.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>

#include "experiments/charts/charts.hpp"
#include "tests/cli/run.hpp"

namespace dflop {
namespace explain_test {

using nlohmann::json;
using testing::RunResult;
using testing::Sandbox;
using testing::two_stages;

/// The path: F0 of stage 0, message, all of stage 1, message, B1 of stage 0.
const std::string kSmall = two_stages("1f1b", 2, R"(, "activation_bytes": 100)");

TEST(Explain, ShowsTheCriticalPathAndPossibleGains) {
  const Sandbox sandbox;
  testing::write_all(sandbox.path("p.json"), kSmall);
  const RunResult result = sandbox.run("simulate --pipeline p.json --explain --format json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json explain = json::parse(result.out)["explain"];
  EXPECT_EQ(explain["iteration"], 0);
  EXPECT_DOUBLE_EQ(explain["makespan_s"].get<double>(), 0.096);
  struct Row {
    std::string stage;
    int links;
    double forward, backward, messages, all;
  };
  const std::vector<Row> rows = {{"stage 0", 3, 0.01, 0.02, 0.003, 0.033},
                                 {"stage 1", 5, 0.02, 0.04, 0.003, 0.063},
                                 {"all", 8, 0.03, 0.06, 0.006, 0.096}};
  ASSERT_EQ(explain["critical_path"].size(), rows.size());
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const json& row = explain["critical_path"][r];
    EXPECT_EQ(row["stage"], rows[r].stage);
    EXPECT_EQ(row["links"], rows[r].links);
    EXPECT_DOUBLE_EQ(row["forward_s"].get<double>(), rows[r].forward);
    EXPECT_DOUBLE_EQ(row["backward_s"].get<double>(), rows[r].backward);
    EXPECT_DOUBLE_EQ(row["messages_s"].get<double>(), rows[r].messages);
    EXPECT_DOUBLE_EQ(row["all_s"].get<double>(), rows[r].all);
    EXPECT_DOUBLE_EQ(row["share"].get<double>(), rows[r].all / 0.096);
    EXPECT_EQ(row.count("optimizer_s"), 0U);  // the path has no optimizer step
  }
  // With stage 1 free: F0 0-10, F1 10-20, B0 20-40, B1 40-60. Each stage is busy 60 ms. With stage 0 free:
  // 3 + 60 + 3. Without messages: 3 x 30. All microbatches are equal.
  const std::vector<std::pair<std::string, double>> gains = {{"compute of stage 1 free", 0.06},
                                                             {"no bubbles (busiest rank)", 0.06},
                                                             {"compute of stage 0 free", 0.066},
                                                             {"messages free", 0.09},
                                                             {"all microbatches of a stage equal", 0.096}};
  ASSERT_EQ(explain["gains"].size(), gains.size());
  for (std::size_t k = 0; k < gains.size(); ++k) {
    const json& gain = explain["gains"][k];
    EXPECT_EQ(gain["change"], gains[k].first);
    EXPECT_DOUBLE_EQ(gain["makespan_s"].get<double>(), gains[k].second);
    EXPECT_NEAR(gain["gain_s"].get<double>(), 0.096 - gains[k].second, 1e-12);
    EXPECT_NEAR(gain["gain"].get<double>(), 1 - gains[k].second / 0.096, 1e-12);
  }
}

TEST(Explain, PrintsTablesOnlyOnRequest) {
  const Sandbox sandbox;
  testing::write_all(sandbox.path("p.json"), kSmall);
  const std::string plain = sandbox.run("simulate --pipeline p.json").out;
  const std::string explained = sandbox.run("simulate --pipeline p.json --explain").out;
  EXPECT_EQ(plain.find("critical path"), std::string::npos);
  EXPECT_EQ(explained.substr(0, plain.size()), plain);
  EXPECT_NE(explained.find("critical path of the iteration, by stage:"), std::string::npos) << explained;
  EXPECT_NE(explained.find("messages free"), std::string::npos) << explained;
}

// CSV, Markdown and LaTeX have only one table. An HTML page next to them has space for the explanation.
TEST(Explain, IsRejectedForFormatsOfOneTable) {
  const Sandbox sandbox;
  testing::write_all(sandbox.path("p.json"), kSmall);
  for (const std::string format : {"csv", "markdown", "latex"}) {
    testing::expect_error(sandbox.run("simulate --pipeline p.json --explain --format " + format),
                          {"option '--explain'", "'--format table' or 'json'", "'" + format + "'"});
    testing::expect_error(
        sandbox.run("simulate --plan a.json --schedule b.json --explain --format " + format),
        {"option '--explain'", "'" + format + "'"});
    EXPECT_EQ(sandbox.run("simulate --pipeline p.json --html p.html --format " + format).out,
              sandbox.run("simulate --pipeline p.json --format " + format).out);
  }
}

TEST(Explain, PutsThePathIntoTheTrace) {
  const Sandbox sandbox;
  testing::write_all(sandbox.path("p.json"), kSmall);
  ASSERT_EQ(sandbox.run("simulate --pipeline p.json --perfetto plain.json").exit_code, 0);
  ASSERT_EQ(sandbox.run("simulate --pipeline p.json --explain --perfetto t.json").exit_code, 0);
  EXPECT_EQ(testing::read_all(sandbox.path("plain.json")).find("critical path"), std::string::npos);
  std::vector<std::string> names;
  const json trace = json::parse(testing::read_all(sandbox.path("t.json")));
  for (const json& event : trace["traceEvents"]) {
    if (event.value("cat", "") == "critical path") names.push_back(event["name"]);
  }
  const std::vector<std::string> expected = {
      "stage 0 forward mb 0", "message 0->1 mb 0",     "stage 1 forward mb 0", "stage 1 backward mb 0",
      "stage 1 forward mb 1", "stage 1 backward mb 1", "message 1->0 mb 1",    "stage 0 backward mb 1"};
  EXPECT_EQ(names, expected);
}

/// Expects that a browser loads nothing from elsewhere. XML namespaces are only names.
void expect_self_contained(std::string page) {
  page = std::regex_replace(page, std::regex("xmlns='http://www.w3.org/2000/svg'"), "");
  for (const char* reference : {"http:", "https:", "src=", "href", "url(", "@import", "<script", "<link"}) {
    EXPECT_EQ(page.find(reference), std::string::npos) << reference;
  }
}

TEST(Explain, WritesASelfContainedPage) {
  const Sandbox sandbox;
  testing::write_all(sandbox.path("p.json"), kSmall);
  const RunResult result = sandbox.run("simulate --pipeline p.json --html page.html");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, sandbox.run("simulate --pipeline p.json").out);
  const std::string page = testing::read_all(sandbox.path("page.html"));
  for (const char* part : {"Critical path of the iteration, 0.0960 s", "The path by stage", "messages free",
                           "Memory of its fullest rank: stage 0, dp 0, rank 0", "at 0.0100 s"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(page.find("usable"), std::string::npos);  // there is no known GPU
  expect_self_contained(page);
  EXPECT_EQ(sandbox.run("simulate --pipeline p.json --html p.json").exit_code, 2);
}

// F0 of stage 0, which starts the path, is paused from 5 to 12 ms. The page shows the typed command,
// including repeated options.
TEST(Explain, ListsPausesSeparately) {
  const Sandbox sandbox;
  testing::write_all(sandbox.path("p.json"), kSmall);
  const std::string command =
      "simulate --pipeline p.json --pause rank=0:0.005:0.007 --pause rank=0:5:1 --explain --html page.html ";
  const RunResult result = sandbox.run(command + "--format json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json explain = json::parse(result.out)["explain"];
  EXPECT_DOUBLE_EQ(explain["makespan_s"].get<double>(), 0.103);
  EXPECT_DOUBLE_EQ(explain["critical_path"][0]["pauses_s"].get<double>(), 0.007);
  EXPECT_DOUBLE_EQ(explain["critical_path"][0]["forward_s"].get<double>(), 0.01);
  const std::string page = testing::read_all(sandbox.path("page.html"));
  EXPECT_NE(page.find("--pause rank=0:0.005:0.007 --pause rank=0:5:1"), std::string::npos);
}

/// Writes a plan and a schedule of two iterations to p.json and s.json. The second iteration takes longer.
void make_plan(const Sandbox& sandbox) {
  const std::string data = "--data traces/datasets/vision_mix.csv --gbs 48 --iterations 2 --seed 2 ";
  ASSERT_EQ(
      sandbox.run("plan " + data + "--model llava-ov-llama3-8b --cluster a100-80g-vtrain:1 --out p.json")
          .exit_code,
      0);
  ASSERT_EQ(sandbox.run("schedule --plan p.json " + data + "--out s.json").exit_code, 0);
}

TEST(Explain, TakesTheSlowestIterationOfASchedule) {
  const Sandbox sandbox;
  make_plan(sandbox);
  const RunResult result =
      sandbox.run("simulate --plan p.json --schedule s.json --explain --html h.html --format json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json out = json::parse(result.out);
  const auto times = out["iterations_s"].get<std::vector<double>>();
  const auto slowest = std::max_element(times.begin(), times.end());
  ASSERT_EQ(slowest - times.begin(), 1);
  EXPECT_EQ(out["explain"]["iteration"], 1);
  EXPECT_EQ(out["explain"]["makespan_s"], *slowest);
  EXPECT_NEAR(out["explain"]["critical_path"].back()["all_s"].get<double>(), *slowest, 1e-9);
  double longest_first = 0;
  for (const json& gain : out["explain"]["gains"]) {
    EXPECT_GE(gain["makespan_s"].get<double>(), longest_first);
    longest_first = gain["makespan_s"].get<double>();
  }
  const std::string page = testing::read_all(sandbox.path("h.html"));
  EXPECT_NE(page.find("the slowest of 2"), std::string::npos);
  EXPECT_NE(page.find("usable 76.0 GiB"), std::string::npos);
  EXPECT_NE(page.find("What gradient reductions wait for"), std::string::npos);
  EXPECT_EQ(out["explain"]["reductions"].at(0)["bound_by"], "intra_node bandwidth") << "it is one node";
  expect_self_contained(page);
}

// An H200 has 136.4 GiB usable, and all stages run on H200s.
TEST(Explain, DrawsTheMemoryOfTheStagesOwnGpu) {
  const Sandbox sandbox;
  make_plan(sandbox);
  const RunResult result = sandbox.run(
      "simulate --plan p.json --schedule s.json --html h.html --stage-gpu 0=h200 --stage-gpu 1=h200");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(testing::read_all(sandbox.path("h.html")).find("usable 136.4 GiB"), std::string::npos);
}

std::int64_t sum(const json& row, const std::vector<const char*>& keys) {
  std::int64_t total = 0;
  for (const char* key : keys) total += row[key].get<std::int64_t>();
  return total;
}

const std::vector<const char*> kUses = {"parameters_bytes", "gradients_bytes", "optimizer_bytes",
                                        "peak_activations_bytes", "peak_buffers_bytes"};

TEST(FullestRank, SplitsItsPeakIntoUses) {
  const Sandbox sandbox;
  make_plan(sandbox);
  const RunResult result = sandbox.run("simulate --plan p.json --schedule s.json --format json");
  const json out = json::parse(result.out);
  const json& fullest = out["fullest_rank"];
  EXPECT_EQ(fullest["peak_memory_bytes"], out["peak_memory_bytes"]);
  EXPECT_EQ(sum(fullest, kUses), out["peak_memory_bytes"]);
  for (const json& group : out["groups"]) {
    EXPECT_EQ(sum(group, kUses), group["peak_memory_bytes"]);
    EXPECT_LE(group["peak_memory_bytes"], out["peak_memory_bytes"]);
    EXPECT_LE(group["peak_time_s"], out["iterations_s"][0]);
  }
  EXPECT_GT(fullest["peak_activations_bytes"], 0);
}

// The activations of all microbatches do not fit at once without recomputation.
TEST(FullestRank, IsNamedIfMemoryIsNotEnough) {
  const Sandbox sandbox;
  make_plan(sandbox);
  std::string plan = testing::read_all(sandbox.path("p.json"));
  for (const auto& [from, to] : {std::pair("\"full\"", "\"none\""), std::pair("\"1f1b\"", "\"gpipe\"")}) {
    ASSERT_NE(plan.find(from), std::string::npos);
    plan.replace(plan.find(from), std::string(from).size(), to);
  }
  testing::write_all(sandbox.path("p.json"), plan);
  const RunResult result = sandbox.run("simulate --plan p.json --schedule s.json --format json");
  EXPECT_EQ(result.exit_code, 3);
  const json fullest = json::parse(result.out)["fullest_rank"];
  const std::regex verdict(
      "dflop: infeasible: out of memory, rank (\\d+) \\((\\w+ \\d+)\\) needs [\\d.]+ GiB at ([\\d.]+) s of iteration "
      "(\\d): parameters [\\d.]+, gradients [\\d.]+, optimizer [\\d.]+, activations [\\d.]+, buffers [\\d.]+; "
      "76.0 GiB are usable\n");
  std::smatch match;
  ASSERT_TRUE(std::regex_match(result.err, match, verdict)) << result.err;
  EXPECT_EQ(std::stoi(match[1]), fullest["first_rank"]);
  EXPECT_EQ(match[2], fullest["stage"]);
  EXPECT_NEAR(std::stod(match[3]), fullest["peak_time_s"].get<double>(), 1e-4);
  EXPECT_EQ(std::stoi(match[4]), fullest["iteration"]);
}

// 128 of 300 groups are drawn, including those on the path: every second or third, and 151 and 152.
TEST(TimelineSvg, DrawsTheGroupsOfThePathIfNotAllFit) {
  Timeline timeline;
  timeline.stages = {"stage 0"};
  timeline.makespan = Nanoseconds(10);
  timeline.groups.resize(300);
  for (std::int32_t g = 0; g < 300; ++g) timeline.groups[g].first_rank = g;
  const auto drawn = [&](const std::vector<PathLink>& path, int rank) {
    const std::string svg = timeline_svg(timeline, timeline.makespan, path);
    return svg.find("rank " + std::to_string(rank) + "<") != std::string::npos;
  };
  const auto link = [](std::int32_t group, std::int32_t to, PathLinkKind kind, int start) {
    return PathLink{kind, Op::forward, 0, 0, group, to, 0, Nanoseconds(start), Nanoseconds(4)};
  };
  const std::vector<PathLink> path = {link(151, 151, PathLinkKind::compute, 0),
                                      link(151, 152, PathLinkKind::message, 4),
                                      link(152, 152, PathLinkKind::compute, 6)};
  EXPECT_TRUE(drawn(path, 151));
  EXPECT_TRUE(drawn(path, 152));
  int rows = 0;
  for (int rank = 0; rank < 300; ++rank) rows += drawn(path, rank) ? 1 : 0;
  EXPECT_EQ(rows, 128);
  const std::string svg = timeline_svg(timeline, timeline.makespan, path);
  EXPECT_NE(svg.find("128 of 300 groups"), std::string::npos);
  EXPECT_NE(svg.find("<path d='M550.0"), std::string::npos)
      << "a line from 4/10 of the 1000 pixels beside 150";
  EXPECT_EQ(timeline_svg(timeline, timeline.makespan).find("<path"), std::string::npos);
}

// 5000 forwards and backwards of 1 and 3 ns on 1000 pixels are too many to draw individually.
TEST(TimelineSvg, DrawsPixelsIfThereAreTooManyBars) {
  Timeline timeline;
  timeline.stages = {"stage 0"};
  timeline.groups.resize(1);
  for (int k = 0; k < 5000; ++k) {
    for (const Op op : {Op::forward, Op::backward}) {
      Span& span = timeline.spans.emplace_back();
      span.op = op;
      span.start = timeline.makespan;
      span.duration = Nanoseconds(op == Op::forward ? 1 : 3);
      timeline.makespan += span.duration;
    }
  }
  const std::string svg = timeline_svg(timeline, timeline.makespan);
  // A single bar, as backwards fill three quarters of every pixel.
  EXPECT_NE(svg.find("<rect x='150.0' y='0.0' width='1000.0' height='13.0' fill='#e8923a'/>"),
            std::string::npos);
}

/// A rank with 2 GiB of parameters that holds 4 GiB of activations from 250 to 500 ns of 1000, and 1 GiB of
/// buffers for one nanosecond from 300.
Timeline busy_memory() {
  Timeline timeline;
  timeline.makespan = Nanoseconds(1000);
  constexpr std::int64_t kGiB = 1 << 30;
  GroupUsage& group = timeline.groups.emplace_back();
  group.model_state.parameters = Bytes{2 * kGiB};
  group.peak_memory = Bytes{7 * kGiB};
  group.peak_time = Nanoseconds(300);
  timeline.memory = {{0, Nanoseconds(0), {}, {}},
                     {0, Nanoseconds(250), {4 * kGiB}, {}},
                     {0, Nanoseconds(300), {4 * kGiB}, {kGiB}},
                     {0, Nanoseconds(301), {4 * kGiB}, {}},
                     {1, Nanoseconds(400), {90 * kGiB}, {}},  // of another rank
                     {0, Nanoseconds(500), {}, {}}};
  return timeline;
}

// With a limit of 8 GiB, 220 pixels are 1.12 x 8 GiB: 24.55 pixels per GiB. Activations lie on top of the 2
// GiB of parameters, 170.9 from the top, and reach 6 GiB, 72.7, from 250 to 500, to the right of the 150
// pixels of labels. Buffers reach 7 GiB, 48.1, from 300 to 301. A range that ends within a half pixel still
// fills it.
TEST(MemorySvg, StacksUsesAndMarksPeakAndLimit) {
  const std::string svg = memory_svg(busy_memory(), 0, Bytes{std::int64_t{8} << 30});
  EXPECT_NE(svg.find("<path d='M150.0 170.9H400.0V72.7H650.5V170.9H1150.0V170.9H150.0Z"), std::string::npos)
      << svg;
  EXPECT_NE(svg.find("H450.0V48.1H451.5V72.7H650.5"), std::string::npos) << svg;
  EXPECT_NE(svg.find("peak 7.00 GiB at 0.0000 s"), std::string::npos);
  EXPECT_NE(svg.find("<circle cx='450.0' cy='48.1'"), std::string::npos) << svg;
  EXPECT_NE(svg.find("usable 8.0 GiB"), std::string::npos);
  EXPECT_EQ(memory_svg(busy_memory(), 0, std::nullopt).find("usable"), std::string::npos);
}

}  // namespace explain_test
}  // namespace dflop
