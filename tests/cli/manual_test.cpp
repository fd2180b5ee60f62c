#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>

#include "experiments/cli/command.hpp"
#include "experiments/cli/help.hpp"
#include "tests/cli/run.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace manual_test {

TEST(Manual, DocsCliIsWhatTheCommandPrints) {
  const std::string page = testing::read_all(std::string(DFLOP_SOURCE_DIR) + "/docs/cli.md");
  EXPECT_EQ(page, manual_text()) << "run: dflop manual > docs/cli.md";
}

TEST(Manual, IsShort) {
  EXPECT_LE(manual_text().size(), 65'000u) << "file formats belong into pages of their own";
}

TEST(Manual, HasEveryOptionOfEveryCommand) {
  const std::string manual = manual_text();
  for (const Command& command : commands()) {
    for (const Option& option : command.options.rows())
      EXPECT_NE(manual.find("`--" + option.name), std::string::npos) << command.name << " --" << option.name;
  }
}

TEST(Manual, EveryCommandHasHelpWithItsOptionsAndExample) {
  const testing::Sandbox sandbox;
  for (const Command& command : commands()) {
    const auto result = sandbox.run(command.name + " --help-all");
    EXPECT_EQ(result.exit_code, 0) << command.name;
    EXPECT_EQ(result.out, help_text(command, true, 100));
    EXPECT_NE(result.out.find(command.example), std::string::npos);
    for (const auto& option : command.options.rows()) {
      EXPECT_NE(result.out.find("\n  --" + option.name), std::string::npos) << option.name;
    }
  }
}

/// Names that mean different things in different commands. All other options have one help.
const std::set<std::string> kTwoMeanings = {
    "bins",  "cores",  "correction", "explain",  "export", "jitter", "log",   "out", "pipeline-schedule",
    "plans", "resume", "samples",    "schedule", "seeds",  "slow",   "steps", "tp",  "warm-up"};

TEST(Manual, AnOptionHasOneHelp) {
  std::map<std::string, std::set<std::string>> helps;
  std::map<std::pair<std::string, std::string>, std::set<OptionGroup>> groups;
  for (const Command& command : commands()) {
    for (const Option& option : command.options.rows()) {
      helps[option.name].insert(option.help);
      groups[{option.name, option.help}].insert(option.group);
    }
  }
  for (const auto& [name, texts] : helps)
    EXPECT_TRUE(texts.size() == 1 || kTwoMeanings.contains(name))
        << "--" << name << ": " << nlohmann::json(texts);
  for (const auto& [option, of_option] : groups) EXPECT_EQ(of_option.size(), 1u) << "--" << option.first;
}

TEST(Manual, NoCommandDeclaresAnOptionTwice) {
  for (const Command& command : commands()) {
    std::set<std::string> names;
    for (const auto& option : command.options.rows())
      EXPECT_TRUE(names.insert(option.name).second) << command.name << " --" << option.name;
  }
}

/// Returns what a JSON document lacks of its schema and version, or an empty string.
std::string unsaid_of(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return "no JSON object: " + text.substr(0, 60);
  if (!json.contains("schema") || !json["schema"].is_string() ||
      !json["schema"].get<std::string>().starts_with("dflop."))
    return "no schema dflop.*: " + text.substr(0, 60);
  return json.value("version", 0) >= 1 ? "" : "no version: " + text.substr(0, 60);
}

/// Tells whether a file has another program's format: traces for Perfetto, and files for transformers and
/// tokenizers.
bool is_of_others(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  return name.find("trace.json") != std::string::npos || name == "config.json" || name == "tokenizer.json";
}

// Examples work as printed; commands with --format are asked for JSON. Machine-readable output, printed or in
// files, states its schema and version.
TEST(Manual, EveryExampleWorksAndItsJsonSaysItsSchema) {
  // In the manual's order, a plan is made before it is scheduled, and scheduled before it is simulated.
  const testing::Sandbox sandbox;
  for (const Command& command : commands()) {
    ASSERT_EQ(command.example.substr(0, 6), "dflop ");
    const bool says_format = command.example.find(" --format ") != std::string::npos;
    const bool asks_json = command.has_format && !says_format && command.name != "devices";
    // Searches with a small budget: the demo in the README runs with the default one.
    const bool searches = command.name == "compare";
    const auto result = sandbox.run(command.example.substr(6) + (asks_json ? " --format json" : "") +
                                    (searches ? " --budget 20000" : ""));
    if (command.name == "devices") {
      EXPECT_TRUE(result.exit_code == 0 || result.exit_code == 4) << result.err;
      continue;
    }
    EXPECT_EQ(result.exit_code, 0) << command.example << "\n" << result.err;
    EXPECT_EQ(result.err.find("old name"), std::string::npos) << result.err;
    EXPECT_FALSE(result.out.empty());
    if (asks_json) {
      EXPECT_EQ(unsaid_of(result.out), "") << command.name;
    }
  }
  EXPECT_TRUE(sandbox.has("plan.json"));
  EXPECT_TRUE(sandbox.has("schedule.json"));
  EXPECT_TRUE(sandbox.has("trace.json.gz"));
  const auto csv = sandbox.run("sweep export --db sweep.sqlite --format json");  // its example prints CSV
  EXPECT_EQ(unsaid_of(csv.out), "");
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(sandbox.path("."))) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || is_of_others(entry.path())) continue;
    if (!name.ends_with(".json") && !name.ends_with(".json.gz")) continue;
    EXPECT_EQ(unsaid_of(read_text_file(entry.path().string())), "") << entry.path();
    ++files;
  }
  EXPECT_GT(files, 9);
}

TEST(Manual, CitationNamesThisVersion) {
  const std::string citation = testing::read_all(std::string(DFLOP_SOURCE_DIR) + "/CITATION.cff");
  const testing::Sandbox sandbox;
  const std::string version = sandbox.run("--version").out.substr(6);  // after "dflop "
  EXPECT_NE(citation.find("\nversion: " + version), std::string::npos) << version;
}

// The fields that the schema of CFF 1.2.0 requires, and the date of this version.
TEST(Manual, CitationHasWhatACitationNeeds) {
  const std::string citation = testing::read_all(std::string(DFLOP_SOURCE_DIR) + "/CITATION.cff");
  for (const std::string key :
       {"cff-version: 1\\.2\\.0", "message: .*", "title: .+", "authors:\n  - name: .+",
        "date-released: '20[0-9]{2}-[01][0-9]-[0-3][0-9]'", "license: Apache-2\\.0"}) {
    EXPECT_TRUE(std::regex_search(citation, std::regex("(^|\n)" + key + "\n"))) << key;
  }
}

}  // namespace manual_test
}  // namespace dflop
