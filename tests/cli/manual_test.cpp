#include <gtest/gtest.h>

#include <set>
#include <string>

#include "experiments/cli/command.hpp"
#include "tests/cli/run.hpp"

namespace dflop {
namespace manual_test {

TEST(Manual, DocsCliIsWhatTheCommandPrints) {
  const std::string page = testing::read_all(std::string(DFLOP_SOURCE_DIR) + "/docs/cli.md");
  EXPECT_EQ(page, manual_text()) << "run: dflop manual > docs/cli.md";
}

TEST(Manual, EveryCommandHasHelpWithItsOptionsAndExample) {
  const testing::Sandbox sandbox;
  for (const Command& command : commands()) {
    const auto result = sandbox.run(command.name + " --help");
    EXPECT_EQ(result.exit_code, 0) << command.name;
    EXPECT_EQ(result.out, help_text(command));
    EXPECT_NE(result.out.find(command.example), std::string::npos);
    for (const auto& option : command.options.rows()) {
      EXPECT_NE(result.out.find("--" + option.name), std::string::npos) << option.name;
    }
  }
}

TEST(Manual, NoCommandDeclaresAnOptionTwice) {
  for (const Command& command : commands()) {
    std::set<std::string> names;
    for (const auto& option : command.options.rows())
      EXPECT_TRUE(names.insert(option.name).second) << command.name << " --" << option.name;
  }
}

TEST(Manual, EveryExampleWorksAsPrinted) {
  // In the manual's order a plan is made before it is scheduled, and scheduled before it is simulated.
  const testing::Sandbox sandbox;
  for (const Command& command : commands()) {
    ASSERT_EQ(command.example.substr(0, 6), "dflop ");
    const auto result = sandbox.run(command.example.substr(6));
    if (command.name == "devices") {
      EXPECT_TRUE(result.exit_code == 0 || result.exit_code == 4) << result.err;
      continue;
    }
    EXPECT_EQ(result.exit_code, 0) << command.example << "\n" << result.err;
    EXPECT_FALSE(result.out.empty());
  }
  EXPECT_TRUE(sandbox.has("plan.json"));
  EXPECT_TRUE(sandbox.has("schedule.json"));
  EXPECT_TRUE(sandbox.has("trace.json.gz"));
}

}  // namespace manual_test
}  // namespace dflop
