// Flags are read by value: the count of a flag does not depend on whether the user passed it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "experiments/cli/command.hpp"
#include "tests/cli/run.hpp"

namespace dflop {
namespace flags_test {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::RunResult;
using testing::Sandbox;

/// Returns the names of all flags of a command.
std::vector<std::string> flags_of(const Command& command) {
  std::vector<std::string> names;
  for (const Option& option : command.options.rows()) {
    if (option.kind.type == ValueKind::Type::flag) names.push_back(option.name);
  }
  return names;
}

/// Returns the value of a flag after parsing the arguments. Other required options may be missing.
bool is_on(const Command& command, const std::vector<std::string>& arguments, const std::string& flag) {
  std::vector<std::string> all = arguments;
  all.emplace_back("--help");
  return is_set(parse_arguments(command.options, all, true), flag);
}

TEST(Flags, AreOffByDefaultInAllCommands) {
  int flags = 0;
  for (const Command& command : commands()) {
    for (const std::string& flag : flags_of(command)) {
      ++flags;
      EXPECT_FALSE(is_on(command, {}, flag)) << command.name << " --" << flag;
      EXPECT_TRUE(is_on(command, {"--" + flag}, flag)) << command.name << " --" << flag;
      EXPECT_THROW(is_on(command, {"--" + flag + "=false"}, flag), Error) << command.name << " --" << flag;
    }
  }
  EXPECT_GT(flags, 40) << "commands and their flags were not found";
}

/// An option that negates a flag is a flag too, so neither of the two is a surprise.
TEST(Flags, TheNegationOfAFlagIsAFlag) {
  for (const Command& command : commands()) {
    const std::vector<std::string> flags = flags_of(command);
    const std::set<std::string> names(flags.begin(), flags.end());
    for (const std::string& flag : flags) {
      if (!names.contains("no-" + flag)) continue;
      EXPECT_FALSE(is_on(command, {"--no-" + flag}, flag)) << command.name;
      EXPECT_FALSE(is_on(command, {"--" + flag}, "no-" + flag)) << command.name;
    }
  }
}

/// Returns the places, "file: text", at which a source uses the count of a flag or reads it as text.
std::vector<std::string> counts_of_flags(const std::string& file, const std::string& source,
                                         const std::set<std::string>& flags) {
  static const std::regex kAsked(
      R"re((count|contains|find|read_text|read_texts|read_given)\((?:values,\s*)?"([a-z0-9-]+)"[,)])re");
  std::vector<std::string> found;
  for (std::sregex_iterator at(source.begin(), source.end(), kAsked); at != std::sregex_iterator(); ++at) {
    if (flags.contains((*at)[2])) found.push_back(file + ": " + at->str());
  }
  return found;
}

std::set<std::string> all_flags() {
  std::set<std::string> flags;
  std::set<std::string> others;
  for (const Command& command : commands()) {
    for (const Option& option : command.options.rows())
      (option.kind.type == ValueKind::Type::flag ? flags : others).insert(option.name);
  }
  for (const std::string& name : others) EXPECT_FALSE(flags.contains(name)) << name << " is a flag elsewhere";
  return flags;
}

TEST(Flags, AreNeverReadByTheirCounts) {
  const std::set<std::string> flags = all_flags();
  ASSERT_TRUE(flags.contains("clip-gradients"));
  std::vector<std::string> found;
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(DFLOP_SOURCE_DIR) / "experiments")) {
    if (entry.path().extension() != ".cpp" && entry.path().extension() != ".hpp") continue;
    ++files;
    for (std::string& place :
         counts_of_flags(entry.path().filename(), testing::read_all(entry.path()), flags))
      found.push_back(std::move(place));
  }
  EXPECT_GT(files, 100);
  EXPECT_TRUE(found.empty()) << json(found).dump(2);
}

TEST(Flags, AFlagThatIsReadByItsCountIsFound) {
  const std::string wrong = "options.clip_gradients = values.count(\"clip-gradients\") > 0;";
  EXPECT_EQ(counts_of_flags("a.cpp", wrong, {"clip-gradients"}).size(), 1u);
  EXPECT_TRUE(counts_of_flags("a.cpp", wrong, {"zero1"}).empty()) << "the option is no flag";
  EXPECT_TRUE(counts_of_flags("a.cpp", R"(is_set(values, "clip-gradients"))", {"clip-gradients"}).empty());
}

const std::string kStudy =
    "--model tiny-vlm --cluster a100-80g:1 --data traces/datasets/vision_mix.csv --gbs 16 --iterations 1 ";

/// Returns the plans of a run: a single plan, or the plans that compare writes.
json plan_of(const Sandbox& sandbox, const std::string& command, const std::string& options) {
  const RunResult run = sandbox.run(command + " " + kStudy + options + " --format json");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  return json::parse(run.out, nullptr, false);
}

TEST(Flags, PlansClipGradientsOnRequest) {
  const Sandbox sandbox;
  for (const std::string planner :
       {"dflop", "dflop-expected", "search --layout uniform --budget 1", "megatron", "pytorch"}) {
    const std::string options = "--planner " + planner;
    EXPECT_FALSE(plan_of(sandbox, "plan", options).value("clip_gradients", false)) << planner;
    EXPECT_TRUE(plan_of(sandbox, "plan", options + " --clip-gradients").value("clip_gradients", false))
        << planner;
  }
}

TEST(Flags, ComparedPlansClipGradientsOnRequest) {
  const Sandbox sandbox;
  for (const std::string flag : {"", "--clip-gradients"}) {
    const RunResult run = sandbox.run("compare " + kStudy + "--systems pytorch,dflop --out out " + flag);
    ASSERT_EQ(run.exit_code, 0) << run.err;
    for (const std::string system : {"pytorch", "dflop"}) {
      const json plan =
          json::parse(testing::read_all(sandbox.path("out/" + system + ".plan.json")), nullptr, false);
      ASSERT_TRUE(plan.is_object()) << system;
      EXPECT_EQ(plan.value("clip_gradients", false), !flag.empty()) << system;
    }
  }
}

}  // namespace flags_test
}  // namespace dflop
