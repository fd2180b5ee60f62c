// dflop train reads options from a recipe.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "experiments/cli/command.hpp"
#include "experiments/cli/recipe.hpp"
#include "tests/cli/run.hpp"

namespace dflop {
namespace recipe_test {

using nlohmann::json;
using testing::RunResult;
using testing::Sandbox;

struct Recipe : ::testing::Test {
  Sandbox sandbox;

  void write(const std::string& text) { testing::write_all(sandbox.path("r.yaml"), text); }
  json printed(const std::string& options) {
    const RunResult result = sandbox.run("train " + options + " --print-recipe");
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return testing::rows_of(result.out);
  }
  void refuses(const std::string& text, const std::vector<std::string>& parts) {
    write(text);
    testing::expect_error(sandbox.run("train r.yaml --steps 1"), parts);
  }
};

TEST_F(Recipe, OptionsReplaceTheRecipes) {
  write("# a comment\nsteps: 3\nlearning-rate: 0.002\nresume: true\nforeign-profile: false\nlog: -x.jsonl\n");
  const json expected = {{"steps", 5}, {"learning-rate", 0.002}, {"resume", true}, {"log", "-x.jsonl"}};
  EXPECT_EQ(printed("r.yaml --steps 5"), expected);
  EXPECT_EQ(printed("--steps 5 --recipe r.yaml"), expected);
}

/// False stands for an option's negation, if it has one.
TEST_F(Recipe, FalseNegatesAFlag) {
  write("steps: 3\nzero1: false\nresume: false\n");
  EXPECT_EQ(printed("r.yaml"), (json{{"steps", 3}, {"no-zero1", true}}));
  EXPECT_EQ(printed("r.yaml --zero1"), (json{{"steps", 3}, {"zero1", true}}));
  write("steps: 3\nzero1: true\n");
  EXPECT_EQ(printed("r.yaml --no-zero1"), (json{{"steps", 3}, {"no-zero1", true}}));
}

TEST_F(Recipe, PrintedRecipesAreRecipes) {
  const json first = printed("--steps 5 --data d.csv --gbs 4 --epsilon 1e-7 --resume");
  write(first.dump(2));
  EXPECT_EQ(printed("r.yaml"), first);
}

/// The same options, typed or from a file, train identically to the last bit.
TEST_F(Recipe, TrainsLikeTypedOptions) {
  testing::write_all(sandbox.path("d.csv"), testing::image_records());
  write("data: d.csv\ngbs: 4\nsteps: 2\nlearning-rate: 0.002\nformat: json\n");
  const RunResult from_file = sandbox.run("train r.yaml");
  const RunResult typed =
      sandbox.run("train --data d.csv --gbs 4 --steps 2 --learning-rate 0.002 --format json");
  ASSERT_EQ(from_file.exit_code, 0) << from_file.err;
  ASSERT_EQ(typed.exit_code, 0) << typed.err;
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(testing::rows_of(from_file.out)[i]["loss"], testing::rows_of(typed.out)[i]["loss"]);
}

/// Each option of train is a key. A value of another kind is rejected with its file, line and key. Text
/// options take any value.
TEST_F(Recipe, TakesEveryOptionOfTrain) {
  const Options options = train_command().options;
  std::size_t checked = 0;
  for (const Option& option : options.rows()) {
    if (option.name == "recipe" || option.name == "print-recipe") continue;
    SCOPED_TRACE(option.name);
    const ValueKind::Type type = option.kind.type;
    const bool is_flag = type == ValueKind::Type::flag;
    const std::string path = sandbox.path("r.yaml").string();
    write("# options\n" + option.name + ": " + (is_flag ? "true" : "3") + "\n");
    const std::vector<std::string> typed = with_recipe(options, {path}).arguments;
    ASSERT_FALSE(typed.empty());
    EXPECT_EQ(typed.back(), is_flag ? "--" + option.name : "--" + option.name + "=3");
    ++checked;
    if (type == ValueKind::Type::text || type == ValueKind::Type::texts) continue;
    write("# options\n" + option.name + ": what\n");
    try {
      with_recipe(options, {path});
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      for (const std::string& part :
           {path + ":2", "key '" + option.name + "'", std::string("found 'what'")}) {
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      }
    }
  }
  EXPECT_GT(checked, 70U);
}

TEST_F(Recipe, RejectsFilesThatAreNoRecipe) {
  refuses("gbs: 4\nlearning-rat: 1\n", {"r.yaml:2", "'learning-rat'", "did you mean 'learning-rate'"});
  refuses("gbs: four\n", {"r.yaml:1", "key 'gbs'", "expected N", "found 'four'"});
  refuses("resume: 1\n", {"key 'resume'", "expected true or false", "found '1'"});
  refuses("gbs: [4, 5]\n", {"key 'gbs'", "expected one value, found 2"});
  refuses("gbs: {a: 1}\n", {"key 'gbs'", "found a map"});
  refuses("gbs:\n", {"key 'gbs'", "found nothing"});
  refuses("log: ''\n", {"key 'log'", "expected FILE"});
  refuses("gbs: 4\nseed: 1\ngbs: 5\n", {"r.yaml:3", "key 'gbs' occurs twice"});
  refuses("gbs: 4\nseed: -1\n", {"r.yaml:2", "option '--seed'", "from 0"});
  refuses("seed: 1\ndtype: f8\n", {"r.yaml:2", "option '--dtype'", "found 'f8'"});
  refuses("recipe: r.yaml\n", {"r.yaml:1", "unknown key 'recipe'"});
  refuses("- gbs\n", {"r.yaml:1", "expected a map of options"});
  refuses("gbs: [4\n", {"r.yaml:", "not YAML or JSON"});
  refuses("gbs: 4\n---\ngbs: 5\n", {"expected one document, found more"});
  refuses("", {"r.yaml:1", "expected a map of options"});
  refuses(",gbs: 4\n---\n", {"expected one document, found more"});  // here LoadAll() never ends
  testing::expect_error(sandbox.run("train none.yaml --steps 1"), {"none.yaml"});
}

}  // namespace recipe_test
}  // namespace dflop
