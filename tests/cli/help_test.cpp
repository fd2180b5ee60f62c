// dflop --help, the help of commands, and names of the previous version.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "experiments/cli/command.hpp"
#include "experiments/cli/help.hpp"
#include "tests/cli/run.hpp"

namespace dflop {
namespace help_test {

using testing::RunResult;
using testing::Sandbox;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);) lines.push_back(line);
  return lines;
}

TEST(Help, OverviewHasAtMost24EntriesOfOneLine) {
  const Sandbox sandbox;
  const RunResult result = sandbox.run("--help");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, overview_text(100));
  EXPECT_EQ(sandbox.run("").err, result.out);
  std::set<std::string> entries;
  for (const std::string& line : lines_of(result.out)) {
    EXPECT_LE(line.size(), 100u) << line;
    if (!line.starts_with("  ")) continue;
    EXPECT_NE(line[2], ' ') << "an entry of two lines: " << line;
    EXPECT_TRUE(entries.insert(line.substr(2, line.find(' ', 2) - 2)).second) << line;
  }
  EXPECT_LE(entries.size(), 24u);
  for (const Command& command : commands()) EXPECT_TRUE(entries.contains(command.noun())) << command.name;
  for (const Task task : all_of<Task>())
    EXPECT_NE(result.out.find("\n" + std::string(to_string(task)) + ":\n"), std::string::npos);
}

TEST(Help, IsShortAndNamesHelpAll) {
  const Sandbox sandbox;
  const std::string text = sandbox.run("plan --help").out;
  EXPECT_LT(text.find("\nRequired:\n"), text.find("\nCommon:\n"));
  for (const std::string shown : {"--data FILE", "--gbs N", "--planner NAME (=dflop)", "--out FILE"})
    EXPECT_NE(text.find("\n  " + shown), std::string::npos) << shown;
  EXPECT_EQ(text.find("--lora"), std::string::npos);
  EXPECT_TRUE(text.ends_with("\n'dflop plan --help-all' shows all options.\n")) << text;
  const std::string all = sandbox.run("plan --help-all").out;
  for (const std::string shown : {"\nRequired:\n  --data", "\nPlanner search:\n", "\n  --lora RANK"})
    EXPECT_NE(all.find(shown), std::string::npos) << shown;
  EXPECT_EQ(all.find("shows all options"), std::string::npos);
}

TEST(Help, FitsItsWidth) {
  for (const Command& command : commands()) {
    for (const int width : {60, 80, 100}) {
      for (const std::string& line : lines_of(help_text(command, true, width))) {
        if (line.find("dflop ") == 2 || line.starts_with("dflop ")) continue;  // example and title
        const bool is_word = line.find(' ', line.find_first_not_of(' ')) == std::string::npos;
        EXPECT_TRUE(line.size() <= static_cast<std::size_t>(width) || is_word) << width << ": " << line;
      }
    }
  }
}

TEST(Help, NounsListTheirCommands) {
  const Sandbox sandbox;
  const RunResult check = sandbox.run("check --help");
  EXPECT_EQ(check.exit_code, 0);
  for (const std::string mode : {"published", "runs", "difference", "schedule"})
    EXPECT_NE(check.out.find("\n  check " + mode + ' '), std::string::npos) << check.out;
  EXPECT_EQ(sandbox.run("check --help-all").out, check.out);
  EXPECT_NE(sandbox.run("sweep --help").out.find("\n  sweep export "), std::string::npos);
  EXPECT_NE(sandbox.run("kernels --help").out.find("\n  kernels tune "), std::string::npos);
  testing::expect_error(sandbox.run("check"), {"'check' needs a second word", "dflop check --help"});
  testing::expect_error(
      sandbox.run("check shedule"),
      {"unknown command 'check shedule'; did you mean 'check schedule'?", "dflop check --help"});
}

/// Old names print what new ones do, and a note.
TEST(Help, OldNamesWork) {
  const Sandbox sandbox;
  const std::string truth = " --truth traces/ground_truth/llama_b200.csv --cluster b200 --format json";
  const std::string schedule =
      " --plan traces/kineto/plans/e1l2.json --schedule traces/kineto/plans/e1l2-schedule.json --format json";
  const struct {
    std::string old_name, name, options;
    int exit_code;
  } kNames[] = {{"validate", "check published", truth, 0},
                {"check", "check schedule", schedule, 0},
                {"fidelity", "check runs", " --plans none.json", 2},
                {"verify", "check difference", " --plans none.json --orders 1f1b,gpipe", 2}};
  for (const auto& of : kNames) {
    const RunResult now = sandbox.run(of.name + of.options);
    const RunResult old = sandbox.run(of.old_name + of.options);
    EXPECT_EQ(now.exit_code, of.exit_code) << now.err;
    EXPECT_EQ(old.exit_code, of.exit_code) << old.err;
    EXPECT_EQ(old.out, now.out);
    EXPECT_EQ(old.err, "dflop: note: 'dflop " + of.old_name + "' is now 'dflop " + of.name +
                           "'; the old name will go in the next version\n" + now.err);
    if (of.exit_code != 0) continue;
    EXPECT_EQ(nlohmann::json::parse(old.out)["schema"], "dflop.result." + of.old_name)
        << "JSON stays as it was";
  }
}

}  // namespace help_test
}  // namespace dflop
