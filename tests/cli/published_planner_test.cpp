// dflop plan --planner dflop: the choices of the published system's released code.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/cli/run.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace published_planner_test {

using testing::RunResult;

std::string plan_of(const std::string& planner, const std::string& model, int nodes) {
  const testing::Sandbox sandbox;
  const RunResult result = sandbox.run(
      "plan --data traces/datasets/vision_mix.csv --gbs 512 --iterations 1 --planner " + planner +
      " --model " + model + " --cluster a100-80g-vtrain:" + std::to_string(nodes) + " --format csv");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result.out;
}

// The unmodified optimizer (BDAI-Research/DFLOP at 60e86d8) chose these plans from the files of --tables-out,
// for vision_mix and a global batch of 512.
TEST(PublishedPlanner, ChoosesLikeTheReleasedCode) {
  const struct {
    std::string model;
    int nodes;
    std::string plan;
  } cases[] = {
      {"llava-ov-qwen2.5-7b", 4, "E tp1 pp1 dp16 | L tp2 pp1 dp8 mb9"},
      {"llava-ov-llama3-8b", 4, "E tp1 pp1 dp16 | L tp2 pp1 dp8 mb9"},
      {"llava-ov-siglip6b-qwen2.5-7b", 4, "E tp1 pp1 dp16 | L tp2 pp1 dp8 mb9"},
      {"llava-ov-siglip6b-llama3-8b", 4, "E tp1 pp1 dp16 | L tp2 pp1 dp8 mb9"},
      {"llava-ov-qwen2.5-32b", 8, "E tp1 pp1 dp16 | L tp8 pp1 dp6 mb11"},
  };
  for (const auto& c : cases) {
    const std::string result = plan_of("dflop", c.model, c.nodes);
    EXPECT_NE(result.find("dflop," + c.plan + ","), std::string::npos) << c.model << "\n" << result;
  }
}

// Algorithm 1 as printed searches every number of microbatches and ends near one sample per bin: 18 x 28 =
// 504 bins for 512 samples.
TEST(PublishedPlanner, AsPrintedItEndsNearOneSampleABin) {
  const std::string result = plan_of("dflop-paper", "llava-ov-llama3-8b", 4);
  EXPECT_NE(result.find("L tp1 pp1 dp28 mb18,"), std::string::npos) << result;
}

// The published planners optimize for the largest bin, the uniform ones for any microbatches.
TEST(PublishedPlanner, NamesTheObjectiveOfItsPlan) {
  const testing::Sandbox sandbox;
  const auto plan = [&](const std::string& planner) {
    const RunResult result = sandbox.run(
        "plan --data traces/datasets/vision_mix.csv --gbs 32 --iterations 1 --model tiny-vlm "
        "--cluster a100-80g:1 --format json --planner " +
        planner);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  for (const char* planner : {"dflop", "dflop-paper", "dflop-expected"})
    EXPECT_NE(plan(planner).find("\"objective\": \"published\""), std::string::npos) << planner;
  for (const char* planner : {"pytorch", "megatron"})
    EXPECT_EQ(plan(planner).find("\"objective\""), std::string::npos) << planner;
}

TEST(PublishedPlanner, SaysWhyNothingFits) {
  const testing::Sandbox sandbox;
  const auto expect_reason = [&](const std::string& options, const std::string& reason) {
    const RunResult result =
        sandbox.run("plan --data traces/datasets/omni_mix.csv --gbs 32 --iterations 1 " + options);
    EXPECT_EQ(result.exit_code, 3) << result.err;
    EXPECT_NE(result.err.find(reason), std::string::npos) << result.err;
  };
  const std::string large = " --model llava-ov-llama3-70b --cluster a100-80g-vtrain:1 --modalities image";
  expect_reason(
      "--planner dflop" + large,
      "1.25 x (10 bytes per parameter, and activations and loss of the largest item: 37 tiles and 18048 tokens)) no "
      "pair of encoder and LLM fits the 80.0 GiB of a GPU");
  expect_reason("--planner dflop-paper" + large, "no pair of encoder and LLM fits");
  expect_reason("--planner dflop --model tiny-vlm --cluster a100-80g-vtrain:1 --modalities text",
                "no item of the data has work for the encoder");
}

/// Returns a file's first lines.
std::vector<std::string> first_lines(const std::filesystem::path& path, std::size_t count) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; lines.size() < count && std::getline(file, line);) lines.push_back(line);
  return lines;
}

constexpr const char* kPlan =
    "plan --data traces/datasets/vision_mix.csv --gbs 32 --iterations 1 --tables-out tables ";

// The names and columns are those that data_aware_optimizer.py of the released code reads. vision_mix has 500
// samples; pickles of protocol 2 begin with 0x80 0x02.
TEST(PublishedTables, AreWrittenAsTheReleasedOptimizerReadsThem) {
  const testing::Sandbox sandbox;
  const RunResult result =
      sandbox.run(std::string(kPlan) + "--planner dflop --model llava-ov-llama3-8b --cluster a100-80g:1");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto header = [&](const std::string& name) {
    const std::vector<std::string> lines = first_lines(sandbox.path("tables/" + name), 1);
    return lines.empty() ? "no file" : lines.front();
  };
  EXPECT_EQ(header("mem_llavaov_siglip_400m.csv"),
            "batch_size,model_mem,fwd_peak,model_state_peak,num_layers,tp_size");
  EXPECT_EQ(header("mem_llavaov_llama3_8b.csv"),
            "batch_size,seq_len,model_mem,fwd_peak,model_state_peak,num_layers,tp_size");
  EXPECT_EQ(header("thr_llavaov_siglip_400m.csv"), "batch_size,model_time,num_layers,tp_size");
  EXPECT_EQ(header("thr_llavaov_llama3_8b.csv"), "seq_len,model_time,num_layers,tp_size");
  EXPECT_EQ(header("thr_llavaov_llama3_8b_skip_attn.csv"), "seq_len,model_time,num_layers,tp_size");
  EXPECT_TRUE(header("llavaov_siglip_llama3.pkl").starts_with("\x80\x02}(X"));
  EXPECT_EQ(first_lines(sandbox.path("tables/dflop_config.yaml"), 99),
            (std::vector<std::string>{
                "models:", "  mllm: llavaov", "  vision:", "    name: siglip", "    size: 400m", "  llm:",
                "    name: llama3", "    size: 8b", "paths:", "  result_dir: .", "hardware:", "  n_gpus: 8",
                "  gpu_memory_gb: 80", "training:", "  global_batch_size: 32", "  training_steps: 1"}));
}

TEST(PublishedTables, AreOnlyForWhatTheReleasedOptimizerPlans) {
  const testing::Sandbox sandbox;
  std::string small = read_text_file(DFLOP_SOURCE_DIR "/experiments/presets/clusters/a100-80g.json");
  small.replace(small.find("\"gpus_per_node\": 8"), 18, "\"gpus_per_node\": 4");
  std::ofstream(sandbox.path("small.json")) << small;
  const auto expect_error = [&](const std::string& options, const std::string& error) {
    const RunResult result = sandbox.run(kPlan + options);
    EXPECT_NE(result.exit_code, 0);
    EXPECT_NE(result.err.find(error), std::string::npos) << result.err;
    EXPECT_FALSE(sandbox.has("tables/dflop_config.yaml"));
  };
  expect_error("--planner search --model llava-ov-llama3-8b --cluster a100-80g:1",
               "works only with '--planner dflop'");
  expect_error(
      "--planner dflop --model internvl2.5-72b --cluster a100-80g:1",
      "the released optimizer does not know 'internvit-6b-v2.5' of model internvl2.5-72b, with 45 layers of width 3200; "
      "it plans");
  expect_error("--planner dflop --model llava-ov-llama3-8b --cluster small.json",
               "the released optimizer needs times of the encoder at tp 1, 2, 4 and 8");
}

}  // namespace published_planner_test
}  // namespace dflop
