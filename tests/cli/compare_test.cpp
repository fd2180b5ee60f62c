// The offline path end to end, on a small cluster.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "experiments/studies/comparison.hpp"
#include "solver/planners/planners.hpp"
#include "tests/cli/run.hpp"

namespace dflop {
namespace compare_test {

using nlohmann::json;
using testing::RunResult;
using testing::Sandbox;

const std::string kTarget =
    "--data traces/datasets/vision_mix.csv --model llava-ov-llama3-8b --cluster a100-80g-vtrain:1 --gbs 48 "
    "--iterations 2 "
    "--seed 5 ";

/// A budget so small that tests do not wait for the search, which has its own tests.
const std::string kLittle = "--budget 20000 ";

/// Returns the systems that compare lists if no scheduler is requested.
std::vector<System> expected_systems() {
  return systems_to_compare({}, {"ilp"});
}

/// Returns the result of the named system, or null if there is none.
json result_of(const json& systems, const std::string& name) {
  for (const json& system : systems) {
    if (system["system"] == name) return system;
  }
  return {};
}

/// Returns the scheduler with which the search's plan did best. Its own scheduler, auto, stays within memory
/// and takes 320 steps.
std::string searched_scheduler(const json& system) {
  const std::string name = system["scheduler"];
  return name == "auto" ? name + " --respect-memory --steps 320" : name;
}

/// Runs a comparison and then its steps one by one. `target` and `plan_options` set what varies between the
/// calls.
void expect_steps_to_agree(const std::string& data, const std::string& target,
                           const std::string& plan_options) {
  const Sandbox sandbox;
  const RunResult compared =
      sandbox.run("compare " + data + target + plan_options + kLittle + "--format json");
  ASSERT_EQ(compared.exit_code, 0) << compared.err;
  const json systems = json::parse(compared.out)["systems"];
  ASSERT_EQ(systems.size(), expected_systems().size());
  for (const System& expected : expected_systems()) {
    SCOPED_TRACE(expected.name);
    const json system = result_of(systems, expected.name);
    ASSERT_FALSE(system.is_null());
    const bool searches = find_planner(expected.planner).searches;
    const std::string scheduler = searches ? searched_scheduler(system) : expected.scheduler.name;
    const std::string budget = searches ? kLittle : "";
    const RunResult planned = sandbox.run("plan " + data + target + plan_options + budget +
                                          "--best-parts --planner " + expected.planner + " --out p.json");
    if (system["plan"].is_null()) {
      EXPECT_EQ(planned.exit_code, 3) << planned.err;
      const std::string reason = system["infeasible_reason"];
      EXPECT_NE(planned.err.find(reason), std::string::npos) << planned.err;
      continue;
    }
    ASSERT_EQ(planned.exit_code, 0) << planned.err;
    // With a scheduler's microbatches, another recomputation may be best than with random ones. Also, the
    // search starts with the plans of the other rows, which 'plan' does not have.
    const bool chosen_when_run = searches || expected.scheduler.name != "random";
    if (chosen_when_run) testing::write_all(sandbox.path("p.json"), system["plan"].dump());
    const RunResult scheduled =
        sandbox.run("schedule --plan p.json " + data + "--gbs 48 --iterations 2 --seed 5 --scheduler " +
                    scheduler + " --out s.json");
    if (scheduled.exit_code == 3) {  // no schedule stays within memory
      EXPECT_FALSE(system["infeasible_reason"].is_null());
      continue;
    }
    ASSERT_EQ(scheduled.exit_code, 0) << scheduled.err;
    const RunResult simulated = sandbox.run("simulate --plan p.json --schedule s.json --format json");
    if (!system["infeasible_reason"].is_null()) {  // it needs more memory than the planner's own rule expects
      EXPECT_EQ(simulated.exit_code, 3) << simulated.err;
      continue;
    }
    ASSERT_EQ(simulated.exit_code, 0) << simulated.err;
    const json result = json::parse(simulated.out);
    EXPECT_EQ(system["plan"], json::parse(testing::read_result(sandbox.path("p.json"))));
    for (const char* key : {"iteration_s_mean", "iteration_s_p95", "samples_per_s", "llm_tokens_per_s", "mfu",
                            "idle_fraction", "peak_memory_bytes"}) {
      EXPECT_EQ(system[key], result[key]) << key;
    }
  }
}

TEST(Compare, NumbersEqualTheCommandsRunOneByOne) {
  expect_steps_to_agree(
      "--data traces/datasets/vision_mix.csv ",
      "--model llava-ov-llama3-8b --cluster a100-80g-vtrain:1 --gbs 48 --iterations 2 --seed 5 ", "");
}

TEST(Compare, NumbersAgreeForAudioOnTwoNodesWithGpipe) {
  expect_steps_to_agree("--data traces/datasets/omni_mix.csv --modalities text,audio ",
                        "--model qwen2-audio-7b --cluster h100:2 --gbs 48 --iterations 2 --seed 5 ",
                        "--pipeline-schedule gpipe --recompute selective ");
}

TEST(Compare, SameSeedSameBytes) {
  const Sandbox sandbox;
  // A short run, in which the measured planning time would be a large and varying share of the result if it
  // were included.
  const std::string command =
      "compare " + kTarget + kLittle + "--train-samples 2000 --gpu-hour-cost 2 --gpu-power-w 700 ";
  const RunResult first = sandbox.run(command + "--out a");
  const RunResult second = sandbox.run(command + "--out b");
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(first.out, second.out);
  EXPECT_NE(first.err.find("% of the run"), std::string::npos) << first.err;
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(sandbox.path("a"))) {
    const auto name = entry.path().filename();
    EXPECT_EQ(testing::read_result(entry.path()), testing::read_result(sandbox.path("b") / name)) << name;
    ++files;
  }
  // Report, JSON, CSV, CSV of the seeds; plan, schedule and trace of each system.
  EXPECT_EQ(files, 4 + 3 * expected_systems().size());
}

TEST(Compare, AnotherSeedIsAnotherResult) {
  const Sandbox sandbox;
  const std::string command =
      "compare --systems megatron,dflop --data traces/datasets/vision_mix.csv --model llava-ov-llama3-8b "
      "--cluster a100-80g-vtrain:1 --gbs 48 --iterations 1 --seed ";
  EXPECT_NE(sandbox.run(command + "5").out, sandbox.run(command + "6").out);
}

TEST(Compare, ReportSaysHowToMakeIt) {
  const Sandbox sandbox;
  const std::string options =
      "--cluster a100-80g-vtrain:1 --data traces/datasets/vision_mix.csv --gbs 16 --iterations 1 --model "
      "llava-ov-llama3-8b "
      "--no-zero1 --recompute selective --max-tokens 4096 --systems dflop";
  ASSERT_EQ(sandbox.run("compare --out o " + options).exit_code, 0);
  EXPECT_NE(
      testing::read_all(sandbox.path("o/report.html")).find("command   dflop compare --out o " + options),
      std::string::npos);
  const json written = json::parse(testing::read_result(sandbox.path("o/compare.json")))["options"];
  EXPECT_EQ(written["recompute"], "selective");
  EXPECT_EQ(written["no-zero1"], true);
  EXPECT_EQ(written["seed"], 1);  // not given
}

TEST(Compare, TrainingFiguresFollowFromThroughput) {
  const Sandbox sandbox;
  const RunResult result = sandbox.run(
      "compare " + kTarget +
      "--systems dflop --train-samples 1000000 --gpu-hour-cost 2 --gpu-power-w 700 --format json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json system = result_of(json::parse(result.out)["systems"], "dflop");
  // hours = samples / throughput / 3600; 8 GPUs; 2 per GPU-hour; 0.7 kW per GPU.
  const double hours = 1e6 / system["samples_per_s"].get<double>() / 3600;
  EXPECT_DOUBLE_EQ(system["train_hours"], hours);
  EXPECT_DOUBLE_EQ(system["train_gpu_hours"], hours * 8);
  EXPECT_DOUBLE_EQ(system["train_cost"], hours * 8 * 2);
  EXPECT_DOUBLE_EQ(system["train_energy_kwh"], hours * 8 * 0.7);
  EXPECT_EQ(sandbox.run("compare " + kTarget + "--gpu-hour-cost 2").exit_code, 2);  // for what training?
}

TEST(Compare, TooSmallAClusterIsInfeasibleAndSaysWhy) {
  const Sandbox sandbox;
  const RunResult compared = sandbox.run(
      "compare --data traces/datasets/vision_mix.csv --model llava-ov-qwen2.5-72b --cluster a100-80g-vtrain:1 --gbs "
      "16 "
      "--iterations 1");
  EXPECT_EQ(compared.exit_code, 3);
  EXPECT_NE(compared.err.find("GiB"), std::string::npos) << compared.err;
  const RunResult planned = sandbox.run(
      "plan --data traces/datasets/vision_mix.csv --model llava-ov-qwen2.5-72b --cluster a100-80g-vtrain:1 --gbs 16 "
      "--out plan.json");
  EXPECT_EQ(planned.exit_code, 3);
  EXPECT_FALSE(sandbox.has("plan.json"));
}

/// Returns the systems of a comparison.
json compared(const Sandbox& sandbox, const std::string& options) {
  const RunResult result = sandbox.run("compare " + kTarget + options + " --format json");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json::parse(result.out)["systems"];
}

TEST(Compare, RowsNameTheirFreeChoices) {
  const Sandbox sandbox;
  const json free = compared(sandbox, "--systems megatron-default,megatron,dflop");
  EXPECT_EQ(result_of(free, "megatron")["chooses"],
            "one tp, pp, dp, microbatches, LLM layers of the first stage, order, recomputation, placement, "
            "gradient buckets");
  EXPECT_EQ(result_of(free, "megatron-default")["chooses"],
            "the smallest tp * pp that fits, one sample a microbatch");
  const json fixed = compared(sandbox,
                              "--systems megatron,dflop --recompute full --placement stage-major "
                              "--gradient-bucket 0 --pipeline-schedule 1f1b");
  EXPECT_EQ(result_of(fixed, "megatron")["chooses"],
            "one tp, pp, dp, microbatches, LLM layers of the first stage");
  EXPECT_EQ(result_of(fixed, "dflop")["chooses"], "tp, pp, dp of each module and microbatches, by its rule");
  EXPECT_EQ(result_of(fixed, "megatron")["plan"]["recomputation"], "full");
  // More freedom never gives a worse plan.
  EXPECT_LE(result_of(free, "megatron")["iteration_s_mean"],
            result_of(fixed, "megatron")["iteration_s_mean"]);
}

TEST(Compare, SystemsSelectsRowsInTheOrderOfTheTable) {
  const Sandbox sandbox;
  const json systems = compared(sandbox, "--systems dflop,pytorch");
  ASSERT_EQ(systems.size(), 2u);
  EXPECT_EQ(systems[0]["system"], "pytorch");
  EXPECT_EQ(systems[1]["system"], "dflop");
  testing::expect_error(sandbox.run("compare " + kTarget + "--systems pytorch,deepspeed"),
                        {"--systems", "megatron-default", "'deepspeed'"});
  testing::expect_error(sandbox.run("compare " + kTarget + "--systems dflop,dflop"), {"--systems", "once"});
}

TEST(Compare, RunsOtherPublishedSystems) {
  const Sandbox sandbox;
  const json systems = compared(sandbox, "--systems disttrain,maestro-order,megatron-mimo");
  ASSERT_EQ(systems.size(), 3u);
  for (const json& system : systems) EXPECT_EQ(system["plan"]["layout"], "disaggregated") << system["system"];
  const json mimo = result_of(systems, "megatron-mimo");
  const json maestro = result_of(systems, "maestro-order");
  EXPECT_EQ(maestro["plan"], mimo["plan"]);
  EXPECT_EQ(result_of(systems, "disttrain")["scheduler"], "disttrain");
  EXPECT_LT(maestro["iteration_s_mean"], mimo["iteration_s_mean"]);
}

TEST(Compare, TheSearchIsNeverWorseThanAnotherRow) {
  const Sandbox sandbox;
  const std::string options[] = {"--budget 20000", "--recompute full --budget 1",
                                 "--layout disaggregated --budget 1"};
  int rows = 0;
  for (const std::string& option : options) {
    const json systems = compared(sandbox, option);
    const json search = result_of(systems, "search");
    for (const json& system : systems) {
      if (system["fits_further"] != true)
        continue;  // there is no requirement for a plan that further batches do not fit
      EXPECT_EQ(search["fits_further"], true) << option;
      ++rows;
      EXPECT_LE(search["iteration_s_mean"], system["iteration_s_mean"]) << option << system["system"];
    }
  }
  EXPECT_GT(rows, 12);
}

// A fixed choice applies to all rows: planners of uniform plans have no plan with another layout.
TEST(Compare, ALayoutAppliesToAllRows) {
  const Sandbox sandbox;
  const json systems = compared(sandbox, "--layout disaggregated --budget 1 --systems pytorch,dflop,search");
  EXPECT_TRUE(result_of(systems, "pytorch")["plan"].is_null());
  EXPECT_NE(result_of(systems, "pytorch")["infeasible_reason"].get<std::string>().find("--layout"),
            std::string::npos);
  EXPECT_EQ(result_of(systems, "dflop")["plan"]["layout"], "disaggregated");
  EXPECT_EQ(result_of(systems, "search")["plan"]["layout"], "disaggregated");
  EXPECT_EQ(result_of(systems, "search")["chooses"].get<std::string>().find("layout"), std::string::npos);
  const testing::RunResult none =
      sandbox.run("compare " + kTarget + "--layout colocated --pipeline-schedule 1f1b --systems search");
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_NE(none.err.find("encoder-in-bubbles"), std::string::npos) << none.err;
}

TEST(Compare, TheUsersPlansAreRows) {
  const Sandbox sandbox;
  const std::string plan = "plan " + kTarget + "--planner pytorch --out mine.json";
  ASSERT_EQ(sandbox.run(plan).exit_code, 0);
  const json systems = compared(
      sandbox, "--systems pytorch,search --layout uniform --budget 1 --scheduler random --plan mine.json");
  ASSERT_EQ(systems.size(), 3u);
  EXPECT_EQ(systems[1]["system"], "mine");
  EXPECT_EQ(systems[1]["chooses"], "nothing: the user's own plan");
  EXPECT_EQ(systems[1]["iteration_s_mean"], systems[0]["iteration_s_mean"]);
  EXPECT_EQ(systems[2]["system"], "search");

  const auto refused = [&](const std::string& options, const std::vector<std::string>& parts) {
    testing::expect_error(sandbox.run("compare " + kTarget + "--systems pytorch " + options), parts);
  };
  refused("--plan mine.json,mine.json", {"mine.json", "'mine' twice"});
  refused("--plan nowhere.json", {"nowhere.json"});
  std::string other = testing::read_all(sandbox.path("mine.json"));
  other.replace(other.find("a100-80g-vtrain:1"), 17, "h100:1");
  testing::write_all(sandbox.path("other.json"), other);
  refused("--plan other.json", {"other.json: key 'cluster'", "expected a100-80g-vtrain:1, found h100:1"});
}

// If the options or a plan set the makespan as the objective, auto fills the rows, as in 'schedule'.
TEST(Compare, RowsAreFilledForTheMakespanAsByTheCommandSchedule) {
  const Sandbox sandbox;
  const std::string plan = "plan " + kTarget + "--planner search --budget 1 --layout uniform --out mine.json";
  ASSERT_EQ(sandbox.run(plan).exit_code, 0);
  const RunResult scheduled = sandbox.run(
      "schedule --plan mine.json --data traces/datasets/vision_mix.csv "
      "--iterations 2 --seed 5 --out mine.schedule.json");
  ASSERT_EQ(scheduled.exit_code, 0) << scheduled.err;
  const RunResult simulated =
      sandbox.run("simulate --plan mine.json --schedule mine.schedule.json --format json");
  const json own = compared(sandbox, "--systems megatron-balanced --plan mine.json");
  EXPECT_EQ(own[0]["scheduler"], "ilp");
  EXPECT_EQ(own[1]["scheduler"], "auto");
  EXPECT_EQ(own[1]["iteration_s_mean"], json::parse(simulated.out)["iteration_s_mean"]);

  const json asked = compared(sandbox, "--systems megatron-balanced --objective makespan");
  EXPECT_EQ(asked[0]["scheduler"], "auto");
  EXPECT_EQ(asked[0]["schedule_objective"], "makespan");
  const json given = compared(sandbox, "--systems megatron-balanced --objective makespan --scheduler lpt");
  EXPECT_EQ(given[0]["scheduler"], "lpt");
}

TEST(Compare, SaysWhichRowsAreFilledForOtherObjectives) {
  const Sandbox sandbox;
  const auto said = [&](const std::string& options) {
    const RunResult result =
        sandbox.run("compare " + kTarget + "--systems megatron-balanced,dflop --format json " + options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out)["assumptions"].dump();
  };
  // auto fills megatron's plan, which requests no objective, for the makespan. dflop's plan requests the
  // published objective.
  EXPECT_NE(said("--scheduler auto").find("makespan (megatron-balanced); published (dflop)"),
            std::string::npos);
  EXPECT_EQ(said("--scheduler auto --objective makespan").find("different objectives"), std::string::npos);
}

// llava-ov-llama3-8b cuts a text of 40,000 tokens to 32,768. The table lists the uncut length and notes the
// cut.
TEST(Data, TheTableSaysWhereTheModelCuts) {
  const Sandbox sandbox;
  const auto write = [&](int tokens) {
    testing::write_all(
        sandbox.path("d.csv"),
        "id,source,subset,modality,media,n_images,images,video_s,video_fps,video_frames,video_wh,audio_s,"
        "n_texts,prompt_tokens,answer_tokens,text_tokens\nx,s,,text,m,,,,,,,,1," +
            std::to_string(tokens) + ",0," + std::to_string(tokens) + "\n");
  };
  const std::string data = "data --data d.csv --model llava-ov-llama3-8b";
  const std::string words = "llm_tokens, before the cut at 32768";
  write(40'000);
  EXPECT_NE(sandbox.run(data).out.find(words), std::string::npos) << sandbox.run(data).err;
  EXPECT_EQ(sandbox.run(data + " --max-tokens 1000").out.find(words), std::string::npos);
  EXPECT_EQ(sandbox.run(data + " --max-tokens 35000").out.find(words), std::string::npos) << "cut already";
  EXPECT_NE(sandbox.run(data + " --format csv").out.find("\nllm_tokens,40000"), std::string::npos);
  write(30'000);
  EXPECT_EQ(sandbox.run(data).out.find(words), std::string::npos);
}

TEST(Data, WritesOneRowPerSample) {
  const Sandbox sandbox;
  // One 1081x165 image, from the golden table: 4 tiles, 2916 ViT tokens, 1795 LLM tokens upstream and 1066 in
  // the public code's variant; 10 + 7 text tokens.
  testing::write_all(
      sandbox.path("d.csv"),
      "id,source,subset,modality,media,n_images,images,video_s,video_fps,video_frames,video_wh,audio_s,"
      "n_texts,prompt_tokens,answer_tokens,text_tokens\nx,s,,image,m,1,1081x165,,,,,,2,10,7,17\n");
  const RunResult upstream = sandbox.run("data --data d.csv --model llava-ov-llama3-8b --samples-out s.csv");
  ASSERT_EQ(upstream.exit_code, 0) << upstream.err;
  const std::string header =
      "id,encoder_sequences,encoder_tokens,encoder_attention_pairs,llm_tokens,llm_attention_pairs\n";
  EXPECT_EQ(testing::read_all(sandbox.path("s.csv")), header + "x,4,2916,2125764,1812,3283344\n");
  ASSERT_EQ(
      sandbox
          .run("data --data d.csv --model llava-ov-llama3-8b --preprocess llava-ov-dflop --samples-out s.csv")
          .exit_code,
      0);
  EXPECT_EQ(testing::read_all(sandbox.path("s.csv")), header + "x,4,2916,2125764,1083,1172889\n");
}

}  // namespace compare_test
}  // namespace dflop
