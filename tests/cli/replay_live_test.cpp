// dflop replay of live recordings: without the first step, and with a profile's or the model's information.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/program/lowering.hpp"
#include "costmodel/analytic/flops.hpp"
#include "experiments/presets/presets.hpp"
#include "experiments/studies/what_if/replay_runs.hpp"
#include "tests/cli/run.hpp"

namespace dflop {
namespace replay_live_test {

using nlohmann::json;
using testing::RunResult;
using testing::Sandbox;

struct ReplayLive : ::testing::Test {
  Sandbox sandbox;

  void SetUp() override {
    testing::write_all(sandbox.path("d.csv"), testing::image_records());
    ran("train --data d.csv --gbs 8 --layout uniform --tp 1 --pp 2 --dp 1 --microbatches 4 --order 1f1b --steps 3 "
        "--record r.json");
  }
  RunResult ran(const std::string& command) {
    RunResult result = sandbox.run(command);
    EXPECT_EQ(result.exit_code, 0) << command << "\n" << result.err;
    return result;
  }
  json replay(const std::string& options) {
    return json::parse(ran("replay --trace r.json --format json " + options).out);
  }
};

TEST_F(ReplayLive, LeavesTheFirstStepOut) {
  EXPECT_EQ(replay("")["iterations"], 2);
  EXPECT_EQ(replay("--iteration all")["iterations"], 3);
  EXPECT_EQ(replay("--iteration 0")["iterations"], 1);
  EXPECT_NE(ran("replay --trace r.json").err.find("the first step of the run is a warm-up and is left out"),
            std::string::npos);
}

TEST_F(ReplayLive, SplitsBackwardsByTheModelThatWasRecorded) {
  const RunResult result = ran("replay --trace r.json --pipeline-schedule zb-h1");
  EXPECT_NE(result.err.find("fractions of whole backwards that run as weight parts, by the model's FLOP: "),
            std::string::npos)
      << result.err;
  json trace = json::parse(testing::read_all(sandbox.path("r.json")));
  trace.erase("made_by");
  testing::write_all(sandbox.path("r.json"), trace.dump());
  const RunResult unknown = sandbox.run("replay --trace r.json --pipeline-schedule zb-h1");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(unknown.err.find("give the weight part of a backward with '--weight-share'"), std::string::npos)
      << unknown.err;
}

TEST_F(ReplayLive, AProfileKnowsSharesAndMemory) {
  EXPECT_TRUE(replay("")["runs"][1]["peak_memory_bytes"].is_null());
  ran("profile --device host --model tiny-vlm --budget-s 0.2 --out p.json");
  const json runs = replay("--profile p.json --pipeline-schedule zb-h1")["runs"];
  const double recorded = runs[0]["peak_memory_bytes"];
  EXPECT_NEAR(runs[1]["peak_memory_bytes"].get<double>() / recorded, 1, 0.1);
  EXPECT_GT(runs[2]["peak_memory_bytes"].get<double>(), 0);
  EXPECT_NE(ran("replay --trace r.json --profile p.json --pipeline-schedule zb-h1").err.find("by p.json: "),
            std::string::npos);
}

/// Returns a program with one stage and one whole backward.
Program backward_of(const Stage& stage, const Work& work) {
  Program program;
  program.stages = {stage};
  program.works = {work};
  Instruction backward;
  backward.op = Op::backward;
  backward.index = 0;  // index of works
  program.instructions = {backward};
  return program;
}

// A stage with two layers of the first encoder and both connectors, and the whole second encoder. Without a
// first layer that sees the data, all products have an input part. Recomputation repeats the layers.
TEST(WeightShares, IncludeTheSecondEncoder) {
  ModelSpec model = find_model("tiny-vlm");
  model.second = SecondEncoder{{"ears", 3, 32, 64, 2, 2, 16, false, false, 0}, {{64, model.llm.hidden}, 2}};
  Stage stage;
  stage.encoder_layers = 2;
  stage.connector = true;
  stage.recomputation = Recomputation::full;
  const Work work{{1, 64, 64 * 64, 0, {2, 40, 800}}, {}};
  const TransformerSpec& ears = model.second->encoder;
  const double attention = 2 * attention_flop(model.encoder, work.encoder).count + 3 * 4.0 * 32 * 800;
  const double layers = 2 * 2.0 * 64 * static_cast<double>(model.encoder.layer_parameters(1)) +
                        3 * 2.0 * 40 * static_cast<double>(ears.layer_parameters(1));
  const double connectors =
      2.0 * 64 / model.connector.merge * static_cast<double>(model.connector.parameters(1)) +
      2.0 * 40 / 2 * 64 * model.llm.hidden;
  const double linear = layers + connectors;
  ReplayReference reference{"", nullptr, model};
  EXPECT_DOUBLE_EQ(weight_shares(backward_of(stage, work), reference).at(0),
                   linear / (2 * linear + layers + 3 * attention));
  // Frozen encoders have no backward; the connectors pass nothing back.
  stage.trained.encoder = false;
  EXPECT_DOUBLE_EQ(weight_shares(backward_of(stage, work), reference).at(0), 0.5);
}

TEST(WeightShares, CountProductsOnceForWeightsAndOnceForInputs) {
  // A stage with the LLM's layers and the head, with one instruction. The weight part is the linear FLOP; the
  // input part is the linear FLOP plus twice the attention FLOP.
  const ModelSpec model = find_model("tiny-vlm");
  Stage stage;
  stage.llm_layers = 2;
  stage.head = true;
  stage.recomputation = Recomputation::none;
  Work work;
  work.llm = {1, 64, 64 * 64};
  Program program = backward_of(stage, work);
  const double attention = 2 * attention_flop(model.llm, work.llm).count;
  const double layers = 2 * layer_forward_flop(model.llm, work.llm).count - attention;
  const double linear = layers + head_flop(model.llm, work.llm).count;
  const ReplayReference reference{"", nullptr, model};
  ASSERT_EQ(weight_shares(program, reference).size(), 1u);
  EXPECT_DOUBLE_EQ(weight_shares(program, reference)[0], linear / (2 * linear + 2 * attention));
  program.stages[0].recomputation = Recomputation::full;  // repeats the layers' forward before the backward
  EXPECT_DOUBLE_EQ(weight_shares(program, reference)[0], linear / (2 * linear + layers + 3 * attention));
  EXPECT_TRUE(weight_shares(program, {}).empty());
  // If the loss takes rows in chunks, the head's backward runs in the forward.
  ReplayReference chunked = reference;
  chunked.model->llm.logits_at_once = 1;
  EXPECT_DOUBLE_EQ(weight_shares(program, chunked)[0], layers / (3 * layers + 3 * attention));
}

TEST(WeightShares, HaveAFrontOnlyInTheWeights) {
  ModelSpec model = find_model("tiny-vlm");
  model.architecture.emplace();
  Stage stage;
  stage.encoder_layers = 1;
  stage.front = true;
  stage.recomputation = Recomputation::none;
  Work work;
  work.encoder = {1, 64, 64 * 64};
  const Program program = backward_of(stage, work);
  const double front = front_flop(model, work.encoder).first.count;
  const double attention = attention_flop(model.encoder, work.encoder).count;
  const double layer = layer_forward_flop(model.encoder, work.encoder).count - attention;
  ASSERT_GT(front, 0);
  EXPECT_DOUBLE_EQ(weight_shares(program, {"", nullptr, model})[0],
                   (layer + front) / (front + 2 * layer + 2 * attention));
}

}  // namespace replay_live_test
}  // namespace dflop
