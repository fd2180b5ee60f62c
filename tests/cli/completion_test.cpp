// dflop completion: the script in a real bash.
#include <gtest/gtest.h>

#include "tests/cli/run.hpp"

namespace dflop {
namespace completion_test {

/// Returns what bash offers for the words typed so far, the last of which is incomplete.
std::string completed(const testing::Sandbox& sandbox, const std::string& words) {
  testing::write_all(sandbox.path("ask.sh"), "source ./dflop.bash\nCOMP_WORDS=(" + words +
                                                 ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_dflop\n"
                                                 "echo \"${COMPREPLY[@]}\"\n");
  const std::string out = sandbox.path("answer").string();
  const std::string command = "cd '" + sandbox.path(".").string() + "' && bash ask.sh > '" + out + "' 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << testing::read_all(out);
  return testing::read_all(out);
}

TEST(Completion, OffersCommandsOptionsNamesAndFiles) {
  const testing::Sandbox sandbox;
  const testing::RunResult script = sandbox.run("completion --shell bash");
  ASSERT_EQ(script.exit_code, 0) << script.err;
  testing::write_all(sandbox.path("dflop.bash"), script.out);
  testing::write_all(sandbox.path("my-plan.json"), "");
  EXPECT_EQ(completed(sandbox, "dflop pla"), "plan\n");
  EXPECT_EQ(completed(sandbox, "dflop sweep ex"), "export\n");
  EXPECT_EQ(completed(sandbox, "dflop kernels tu"), "tune\n");
  EXPECT_EQ(completed(sandbox, "dflop che"), "check\n");
  EXPECT_EQ(completed(sandbox, "dflop check ''"), "published runs difference schedule\n");
  EXPECT_EQ(completed(sandbox, "dflop check runs --rec"), "--recordings\n");
  EXPECT_EQ(completed(sandbox, "dflop plan --help"), "--help --help-all\n");
  EXPECT_EQ(completed(sandbox, "dflop plan --pipe"), "--pipeline-schedule\n");
  EXPECT_EQ(completed(sandbox, "dflop plan --recompute sel"), "selective\n");
  EXPECT_EQ(completed(sandbox, "dflop plan --gbs 16 --model tiny"), "tiny-vlm\n");
  EXPECT_EQ(completed(sandbox, "dflop plan --cluster h2"), "h200\n");
  EXPECT_EQ(completed(sandbox, "dflop schedule --plan my"), "my-plan.json\n");
  EXPECT_EQ(completed(sandbox, "dflop sweep export --wh"), "--where\n");
  EXPECT_EQ(completed(sandbox, "dflop nonsense --x"), "\n");
}

TEST(Completion, ZshReadsTheSameAfterItsOwnBeginning) {
  const testing::Sandbox sandbox;
  const std::string bash = sandbox.run("completion").out;
  const std::string zsh = sandbox.run("completion --shell zsh").out;
  EXPECT_EQ(zsh.substr(zsh.size() - bash.size()), bash);
  EXPECT_NE(zsh.find("bashcompinit\n"), std::string::npos);
  testing::expect_error(sandbox.run("completion --shell fish"), {"--shell", "fish"});
}

}  // namespace completion_test
}  // namespace dflop
