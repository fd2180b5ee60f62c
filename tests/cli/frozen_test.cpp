// --freeze and --lora from a plan to its simulation and replay, and cases where such plans are rejected.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/run.hpp"

namespace dflop {
namespace frozen_cli_test {

using nlohmann::json;
using testing::expect_error;
using testing::RunResult;
using testing::Sandbox;

const std::string kData = " --data traces/datasets/vision_mix.csv ";
const std::string kTiny =
    "plan --model tiny-vlm --cluster a100-80g:1 --gbs 16 --iterations 1 --format json" + kData;

struct Frozen : ::testing::Test {
  Sandbox sandbox;

  json ran(const std::string& command) const {
    const RunResult result = sandbox.run(command);
    EXPECT_EQ(result.exit_code, 0) << command << "\n" << result.err;
    return json::parse(result.out, nullptr, false);
  }
};

TEST_F(Frozen, PlansNameFrozenParts) {
  const json all = ran(kTiny);
  EXPECT_FALSE(all.contains("frozen"));
  EXPECT_FALSE(all.contains("lora_rank"));
  EXPECT_EQ(ran(kTiny + "--freeze encoder,connector")["frozen"], (json{"encoder", "connector"}));
  const json lora = ran(kTiny + "--freeze encoder --lora 8 --planner search");
  EXPECT_EQ(lora["frozen"], (json{"encoder", "llm"}));
  EXPECT_EQ(lora["lora_rank"], 8);
}

/// Returns the seconds that the encoder's ranks compute in one iteration of a bundled plan with `frozen`
/// modules.
double encoder_busy(const Sandbox& sandbox, const json& frozen, double& iteration_s) {
  json plan =
      json::parse(testing::read_all(DFLOP_SOURCE_DIR "/traces/plans/llava-ov-llama3-8b-disaggregated.json"));
  plan["recomputation"] = "none";
  plan.erase("made_by");
  if (!frozen.empty()) plan["frozen"] = frozen;
  testing::write_all(sandbox.path("plan.json"), plan.dump());
  EXPECT_EQ(
      sandbox.run("schedule --plan plan.json --iterations 1 --scheduler lpt --out s.json" + kData).exit_code,
      0);
  const RunResult run = sandbox.run("simulate --plan plan.json --schedule s.json --out t.json --format json");
  const json result = json::parse(run.out, nullptr, false);
  iteration_s = result["iteration_s_mean"];
  double busy = 0;
  for (const json& group : result["groups"]) {
    if (group["stage"].get<std::string>().starts_with("encoder")) busy += group["busy_s"].get<double>();
  }
  return busy;
}

// A backward takes twice as long as a forward, for attention 2.5 times. Without it, a third or slightly less
// remains. The simulation replays to the nanosecond.
TEST_F(Frozen, AnEncoderCostsAboutAThird) {
  double trained_s = 0;
  double frozen_s = 0;
  const double trained = encoder_busy(sandbox, json::array(), trained_s);
  const double frozen = encoder_busy(sandbox, {"encoder", "connector"}, frozen_s);
  EXPECT_GT(frozen, 0.28 * trained);
  EXPECT_LT(frozen, 0.36 * trained);
  EXPECT_LT(frozen_s, trained_s);
  const json replay = ran("replay --trace t.json --format json");
  EXPECT_EQ(replay["runs"][0]["makespan_s"], replay["runs"][1]["makespan_s"]);
  EXPECT_EQ(replay["runs"][0]["peak_memory_bytes"], replay["runs"][1]["peak_memory_bytes"]);
}

TEST_F(Frozen, CommandsThatTrainAllPartsRejectThem) {
  ran(kTiny + "--freeze encoder --layout uniform --tp 1 --pp 1 --dp 1 --out p.json");
  EXPECT_EQ(sandbox.run("schedule --plan p.json --iterations 1 --out s.json" + kData).exit_code, 0);
  expect_error(sandbox.run("train --plan p.json --steps 1" + kData),
               {"p.json", "key 'frozen'", "found only connector, LLM; 'dflop train --encoder-rate 0' keeps"});
  const RunResult program =
      sandbox.run("simulate --plan p.json --schedule s.json --program-out program.json");
  EXPECT_EQ(program.exit_code, 2);
  EXPECT_NE(
      program.err.find("key 'frozen': a program for other executors trains all parts, found a plan that "
                       "trains only connector, LLM: plan without"),
      std::string::npos)
      << program.err;
}

// The data set does not exist, so the errors come before data are read and a plan is searched.
TEST_F(Frozen, TrainRejectsOptionsThatNoLiveRankSupports) {
  const std::string train = "train --steps 1 --data missing.csv ";
  expect_error(sandbox.run(train + "--freeze connector"),
               {"option '--freeze': live ranks train all parts, found only encoder, LLM;",
                "'dflop train --connector-rate 0' keeps the weights of this part unchanged"});
  expect_error(sandbox.run(train + "--freeze encoder,llm"),
               {"'dflop train --encoder-rate 0 --llm-rate 0' keeps the weights of these parts"});
  expect_error(sandbox.run(train + "--freeze encoder --lora 8"),
               {"option '--lora': live ranks do not train with LoRA, found rank 8\n"});
  expect_error(sandbox.run(train + "--optimizer-states bf16"), {"--optimizer-states", "fp32", "'bf16'"});
}

TEST_F(Frozen, WrongOptionsAreRejected) {
  expect_error(sandbox.run(kTiny + "--freeze vit"), {"--freeze", "encoder, connector, llm", "vit"});
  expect_error(sandbox.run(kTiny + "--lora 0"), {"--lora", "1", "0"});
  expect_error(sandbox.run(kTiny + "--freeze encoder,connector,llm"),
               {"option '--freeze'", "a list that leaves a part to train"});
  json plan = ran(kTiny);
  plan["lora_rank"] = 4;
  testing::write_all(sandbox.path("p.json"), plan.dump());
  expect_error(sandbox.run("schedule --plan p.json" + kData), {"p.json", "lora_rank", "'llm' to be frozen"});
  plan["frozen"] = {"head"};
  testing::write_all(sandbox.path("p.json"), plan.dump());
  expect_error(sandbox.run("schedule --plan p.json" + kData),
               {"p.json", "frozen", "encoder, connector, llm", "head"});
}

}  // namespace frozen_cli_test
}  // namespace dflop
