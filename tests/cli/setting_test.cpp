// --setting and its parts: the choices that all plans of a study share.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/run.hpp"

namespace dflop {
namespace setting_test {

using nlohmann::json;
using testing::expect_error;
using testing::RunResult;
using testing::Sandbox;

const std::string kTarget =
    "--data traces/datasets/vision_mix.csv --model llava-ov-llama3-8b --cluster a100-80g-vtrain:2 --gbs 64 "
    "--iterations 1 ";

/// Plans with these options and returns the plan file.
json plan_with(const std::string& options) {
  const Sandbox sandbox;
  const RunResult result = sandbox.run("plan " + kTarget + options + " --out plan.json");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json::parse(testing::read_result(sandbox.path("plan.json")));
}

void expect_keys(const json& plan, const json& expected) {
  for (const auto& [key, value] : expected.items()) EXPECT_EQ(plan.value(key, json()), value) << key;
}

// torch's DistributedDataParallel uses buckets of 25 MiB = 26,214,400 bytes.
const json kPublished = {
    {"schedule", "1f1b"},         {"recomputation", "full"}, {"gradient_bucket_bytes", 26214400},
    {"optimizer_states", "bf16"}, {"reshard", "hub"},        {"zero1", false},
    {"sequence_parallel", false}};

TEST(Setting, PublishedIsInThePlan) {
  expect_keys(plan_with("--planner dflop --setting published"), kPublished);
  expect_keys(plan_with("--planner megatron --setting published"), kPublished);
}

TEST(Setting, TunedIsTheDefault) {
  const json usual = plan_with("");
  EXPECT_EQ(plan_with("--setting tuned"), usual);
  for (const char* key : {"gradient_bucket_bytes", "optimizer_states", "reshard"})
    EXPECT_FALSE(usual.contains(key));
  expect_keys(usual, {{"zero1", true}, {"sequence_parallel", true}, {"recomputation", "full"}});
}

// Each option is set by itself, together with the setting or against it.
TEST(Setting, AnOptionOverridesIt) {
  const struct {
    std::string option;
    json changed;
  } parts[] = {
      {"--recompute selective", {{"recomputation", "selective"}}},
      {"--pipeline-schedule gpipe", {{"schedule", "gpipe"}}},
      {"--gradient-bucket 1000000", {{"gradient_bucket_bytes", 1000000}}},
      {"--gradient-bucket 0", {{"gradient_bucket_bytes", json()}}},
      {"--optimizer-states fp32", {{"optimizer_states", json()}}},
      {"--reshard direct", {{"reshard", json()}}},
      {"--zero1", {{"zero1", true}}},
      {"--sequence-parallel", {{"sequence_parallel", true}}},
      {"--no-zero1", {{"zero1", false}}},
  };
  for (const auto& part : parts) {
    SCOPED_TRACE(part.option);
    json expected = kPublished;
    expected.update(part.changed);
    expect_keys(plan_with("--planner dflop --max-tokens 4096 --setting published " + part.option), expected);
  }
  const json alone = plan_with("--optimizer-states bf16 --reshard hub --no-zero1 --no-sequence-parallel");
  expect_keys(alone, {{"optimizer_states", "bf16"},
                      {"reshard", "hub"},
                      {"zero1", false},
                      {"sequence_parallel", false},
                      {"gradient_bucket_bytes", json()}});
}

// The search would choose no recomputation here, but the published setting uses full.
TEST(Setting, TheSearchKeepsItsFixedValues) {
  const std::string search = "--planner search --budget 1 ";
  EXPECT_NE(plan_with(search)["recomputation"], "full");
  expect_keys(plan_with(search + "--setting published"), kPublished);
  expect_keys(plan_with(search + "--setting published --recompute none"), {{"recomputation", "none"}});
}

TEST(Setting, UnsupportedCombinationsAreRejected) {
  const Sandbox sandbox;
  expect_error(sandbox.run("plan " + kTarget + "--setting best"),
               {"--setting", "tuned or published", "best"});
  expect_error(sandbox.run("plan " + kTarget + "--zero1 --no-zero1"),
               {"--zero1", "--no-zero1", "cannot be combined with"});
  expect_error(sandbox.run("plan " + kTarget + "--sequence-parallel --no-sequence-parallel"),
               {"--sequence-parallel", "--no-sequence-parallel", "cannot be combined with"});
  expect_error(sandbox.run("plan " + kTarget + "--optimizer-states fp16"),
               {"--optimizer-states", "fp32 or bf16"});
  expect_error(sandbox.run("plan " + kTarget + "--reshard ring"), {"--reshard", "direct or hub", "ring"});
}

// A tp of 2 gets two copies from the hub. The baselines have no hub, so their time is the same for both
// reshards.
TEST(Setting, TheHubCostsDisaggregatedPlansOnly) {
  const Sandbox sandbox;
  const auto seconds = [&](const std::string& options) {
    const RunResult result =
        sandbox.run("compare " + kTarget + "--systems megatron,dflop --format json " + options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    json by_name;
    const json compared = json::parse(result.out);
    for (const json& system : compared["systems"]) by_name[system["system"]] = system["iteration_s_mean"];
    return by_name;
  };
  const json direct = seconds("--setting published --reshard direct");
  const json hub = seconds("--setting published");
  EXPECT_EQ(direct["megatron"], hub["megatron"]);
  EXPECT_LT(direct["dflop"].get<double>(), hub["dflop"].get<double>());
}

// The files of a run with a hub can be read back, and operations that do not support a hub are rejected by
// name.
TEST(Setting, AHubRunsInAllSimulations) {
  const Sandbox sandbox;
  const auto run = [&](const std::string& arguments) {
    const RunResult result = sandbox.run(arguments);
    EXPECT_EQ(result.exit_code, 0) << arguments << "\n" << result.err;
    return result.out;
  };
  run("plan " + kTarget + "--setting published --gradient-bucket 0 --out plan.json");
  run("schedule --plan plan.json --data traces/datasets/vision_mix.csv --iterations 1 --scheduler lpt --out s.json");
  const std::string simulated = run("simulate --plan plan.json --schedule s.json --out t.json --format csv");
  // A replayed file keeps its hub, so its messages are as slow on shared links.
  const std::string contended =
      run("simulate --plan plan.json --schedule s.json --network contention --format json");
  const json replayed = json::parse(
      run("replay --trace t.json --network contention --cluster a100-80g-vtrain:2 --format json"));
  EXPECT_EQ(replayed["runs"].back()["makespan_s"], json::parse(contended)["iteration_s_mean"]);
  expect_error(sandbox.run("replay --trace t.json --pipeline-schedule gpipe"), {"hub"});
}

TEST(Setting, TrainRejectsUnsupportedSettings) {
  const Sandbox sandbox;
  testing::write_all(sandbox.path("small.csv"), testing::image_records());
  const auto train = [&](const std::string& options) {
    const RunResult planned = sandbox.run(
        "plan --data small.csv --model tiny-vlm --cluster a100-80g-vtrain:1 --gbs 16 --iterations 1 --out plan.json " +
        options);
    EXPECT_EQ(planned.exit_code, 0) << planned.err;
    return sandbox.run("train --plan plan.json --data small.csv --steps 1");
  };
  expect_error(train("--optimizer-states bf16"), {"plan.json", "optimizer_states", "fp32", "bf16"});
  expect_error(train("--reshard hub"), {"plan.json", "reshard", "direct", "hub"});
}

}  // namespace setting_test
}  // namespace dflop
