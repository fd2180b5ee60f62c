// Bad input gives one clear error that names the place, exit code 2, and no output file.
#include <gtest/gtest.h>

#include <vector>

#include "tests/cli/run.hpp"

namespace dflop {
namespace errors_test {

using testing::expect_error;
using testing::RunResult;
using testing::Sandbox;

constexpr const char* kHeader =
    "id,source,subset,modality,media,n_images,images,video_s,video_fps,video_frames,video_wh,audio_s,n_texts,"
    "prompt_tokens,answer_tokens,text_tokens\n";
constexpr const char* kGoodRow = "x,s,,image,m,1,640x480,,,,,,2,10,7,17\n";

TEST(Errors, Usage) {
  const Sandbox sandbox;
  expect_error(sandbox.run("comapre"), {"unknown command 'comapre'; did you mean 'compare'?"});
  expect_error(sandbox.run("models --frmat json"),
               {"--frmat", "did you mean '--format'?", "dflop models --help"});
  expect_error(sandbox.run("models --form json"), {"--form"});
  expect_error(sandbox.run("models --format yaml"),
               {"--format", "table, json, csv, markdown or latex", "yaml"});
  expect_error(sandbox.run("models extra"), {"dflop models --help"});
  expect_error(sandbox.run("data --model llava-ov-llama3-8b"), {"--data", "required"});
  expect_error(sandbox.run("models --format csv --format json"), {"--format", "more than once"});
  expect_error(sandbox.run("\"frobnicate$(printf '\\n\\033')x\""), {"unknown command 'frobnicate??x'"});
  EXPECT_EQ(sandbox.run("").exit_code, 2);
  EXPECT_EQ(sandbox.run("--version").exit_code, 0);
}

TEST(Errors, Options) {
  const Sandbox sandbox;
  const std::string plan = "plan --data traces/datasets/vision_mix.csv --model llava-ov-llama3-8b ";
  expect_error(sandbox.run(plan + "--cluster a100-80g-vtrain:0 --gbs 8"),
               {"a100-80g-vtrain:0", "number of nodes"});
  expect_error(sandbox.run(plan + "--cluster a100-80g-vtrain:x --gbs 8"), {"'x'"});
  expect_error(sandbox.run(plan + "--cluster v100 --gbs 8"), {"unknown cluster 'v100'", "a100-80g"});
  expect_error(sandbox.run(plan + "--cluster a100-80 --gbs 8"), {"did you mean 'a100-80g'?"});
  expect_error(sandbox.run(plan + "--cluster h100 --gbs 8 --planner serach"), {"did you mean 'search'?"});
  expect_error(sandbox.run(plan + "--cluster h100 --gbs 8 --recompute non"), {"did you mean 'none'?"});
  expect_error(sandbox.run(plan + "--cluster a100-80g-vtrain:1 --gbs 0"), {"--gbs", "'0'"});
  expect_error(sandbox.run(plan + "--cluster a100-80g-vtrain:1 --gbs 1e9"),
               {"--gbs", "from 1 to 65536", "'1000000000'"});
  for (const char* none : {"8.5", "2,5", "1e-1", "many"})
    expect_error(sandbox.run(plan + "--cluster h100 --gbs " + none),
                 {"--gbs", "a whole number, such as 1000 or 3e6", none});
  // 2^64 - 1 does not fit a signed 64-bit integer, and 1e18 is above 2^53, where doubles start to skip
  // integers.
  for (const std::string large : {"--seed 18446744073709551615", "--seed 1e18", "--seed 1e308"})
    expect_error(sandbox.run("plan --model tiny-vlm --cluster h100 --gbs 4 " + large),
                 {"'--seed'", "a whole number below 2^63, or below 2^53 if it has an exponent"});
  expect_error(sandbox.run(plan + "--cluster a100:4 --gbs 8"), {"did you mean 'a100-80g'?"});
  expect_error(sandbox.run(plan + "--cluster a100-80g-vtrain:1 --gbs 8 --planner best"),
               {"best", "megatron"});
  expect_error(sandbox.run(plan + "--cluster a100-80g-vtrain:1 --gbs 8 --recompute some"),
               {"--recompute", "some"});
  expect_error(sandbox.run(plan + "--cluster a100-80g-vtrain:1 --gbs 8 --placement snake"),
               {"--placement", "stage-major or replica-major", "snake"});
  const std::string schedule = plan + "--cluster a100-80g-vtrain:1 --gbs 8 --pipeline-schedule ";
  expect_error(sandbox.run(schedule + "2f2b"), {"--pipeline-schedule", "zb-h1", "2f2b"});
  // Only the search makes plans of this order.
  expect_error(sandbox.run("plan --planner pytorch" + schedule.substr(4) + "encoder-in-bubbles"),
               {"--pipeline-schedule", "encoder-in-bubbles", "--planner pytorch"});
  expect_error(sandbox.run(schedule + "interleaved"), {"--chunks", "required with interleaved"});
  expect_error(sandbox.run(schedule + "zb-v --chunks 3"), {"--chunks", "from 2 to 2", "3"});
  expect_error(sandbox.run("compare" + schedule.substr(4) + "zb-v"), {"one stage per rank", "zb-v"});
  expect_error(sandbox.run(plan + "--cluster a100-80g-vtrain:1 --gbs 8 --assume-image 0x5"),
               {"--assume-image", "0x5"});
  expect_error(sandbox.run(plan + "--cluster a100-80g-vtrain:1 --gbs 8 --assume-video 640x360"),
               {"--assume-video"});
  expect_error(sandbox.run(plan + "--cluster a100-80g-vtrain:1 --gbs 8 --modalities image,sound"),
               {"--modalities"});
  expect_error(sandbox.run("plan --data traces/datasets/vision_mix.csv --model gpt --cluster h100 --gbs 8"),
               {"unknown model 'gpt'", "llava-ov-llama3-8b"});
  testing::write_all(sandbox.path("config.json"), R"({"model_type": "qwen2"})");
  expect_error(
      sandbox.run("plan --data traces/datasets/vision_mix.csv --model config.json --cluster h100 --gbs 8"),
      {"config.json", "found a Transformers config: to use it, give its folder"});
  expect_error(
      sandbox.run(plan + "--slow rank=0:2"),
      {"unknown option '--slow'; it is an option of 'simulate', 'replay'", "see 'dflop plan --help'"});
  expect_error(sandbox.run(plan + "--gsb 8"), {"unknown option '--gsb'; did you mean '--gbs'?"});
  expect_error(sandbox.run(plan + "--frobnicate"),
               {"unknown option '--frobnicate'; see 'dflop plan --help'"});
}

TEST(Errors, Records) {
  const Sandbox sandbox;
  const auto data = [&](const std::string& text) {
    testing::write_all(sandbox.path("d.csv"), text);
    return sandbox.run("data --data d.csv --model llava-ov-llama3-8b --samples-out s.csv");
  };
  const std::string header = kHeader;
  const auto with_row = [&](const std::string& row) { return data(header + kGoodRow + row + "\n"); };
  EXPECT_EQ(data(header + kGoodRow).exit_code, 0);
  std::filesystem::remove(sandbox.path("s.csv"));

  expect_error(data(""), {"d.csv", "empty"});
  expect_error(data(header), {"d.csv"});
  expect_error(data("color," + header + "red," + kGoodRow), {"d.csv", "color"});
  expect_error(data("id,source\nx,s\n"), {"d.csv", "row 1", "missing"});
  expect_error(with_row("y,s,,image,m,1,0x0,,,,,,2,10,7,17"), {"row 3", "images", "0x0"});
  expect_error(with_row("y,s,,image,m,1,640x480,,,,,,2,10,7,-17"), {"row 3", "text_tokens", "-17"});
  expect_error(with_row("y,s,,video,m,,,nan,30,,640x480,,2,10,7,17"), {"row 3", "video_s", "nan"});
  expect_error(with_row("y,s,,smell,m,1,640x480,,,,,,2,10,7,17"), {"row 3", "modality", "smell"});
  expect_error(with_row("y,s,,audio,m,,,,,,,4.5,1,0,7,7"), {"row 3", "audio", "--modalities"});
  expect_error(with_row("y,s,,image"), {"row 3"});
  EXPECT_FALSE(sandbox.has("s.csv"));
  expect_error(sandbox.run("data --data missing.csv --model llava-ov-llama3-8b"), {"missing.csv"});
  expect_error(sandbox.run("data --data . --model llava-ov-llama3-8b"), {"directory"});
}

TEST(Errors, StrictRejectsAssumptions) {
  const Sandbox sandbox;
  expect_error(sandbox.run("data --data traces/datasets/vision_mix.csv --model qwen2.5-vl-7b --strict"),
               {"vision_mix.csv", "row", "--assume-"});
}

TEST(Errors, PlansAndSchedules) {
  const Sandbox sandbox;
  const std::string base = "--data traces/datasets/vision_mix.csv ";
  ASSERT_EQ(sandbox
                .run("plan " + base +
                     "--model llava-ov-llama3-8b --cluster a100-80g-vtrain:1 --gbs 16 --iterations 1 "
                     "--out plan.json")
                .exit_code,
            0);
  const std::string plan = testing::read_all(sandbox.path("plan.json"));
  const auto schedule_with = [&](const std::string& text) {
    testing::write_all(sandbox.path("bad.json"), text);
    return sandbox.run("schedule --plan bad.json " + base + "--iterations 1 --out out.json");
  };
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = plan;
    EXPECT_NE(text.find(from), std::string::npos) << from;
    return text.replace(text.find(from), from.size(), to);
  };
  expect_error(schedule_with(plan.substr(0, plan.size() / 2)), {"bad.json"});
  expect_error(schedule_with(replaced("\"version\": 1", "\"version\": 2")), {"bad.json", "newer", "2"});
  expect_error(schedule_with(replaced("\"gbs\": 16", "\"gbs\": -16")), {"bad.json", "gbs", "-16"});
  expect_error(schedule_with(replaced("\"gbs\"", "\"gps\"")), {"bad.json", "gps"});
  expect_error(schedule_with(replaced("\"gbs\": 16", "\"gbs\": \"16\"")), {"bad.json", "gbs"});
  expect_error(schedule_with(""), {"bad.json"});
  EXPECT_FALSE(sandbox.has("out.json"));
  // The batch cannot fill the plan's microbatches.
  expect_error(sandbox.run("schedule --plan plan.json " + base + "--gbs 1 --out out.json"), {"--gbs", "'1'"});
  expect_error(sandbox.run("schedule --plan plan.json " + base + "--scheduler best"), {"best", "lpt"});
  expect_error(sandbox.run("schedule --plan plan.json " + base + "--time-limit 1 --node-budget 2"),
               {"--node-budget"});
  expect_error(sandbox.run("schedule --plan plan.json " + base + "--time-limit nan"), {"--time-limit"});
  expect_error(schedule_with(replaced("[27]", "[26]")), {"bad.json", "encoder.layers"});
  expect_error(schedule_with(replaced("a100-80g-vtrain:1", "v100:1")),
               {"bad.json", "'cluster'", "unknown cluster 'v100'"});
  expect_error(schedule_with(replaced("llava-ov-llama3-8b", "./none.json")),
               {"bad.json", "'model'", "./none.json"});
  expect_error(sandbox.run("simulate --plan plan.json --schedule plan.json"),
               {"plan.json", "dflop.schedule"});
}

TEST(Errors, NamesMayHoldBytesOfZero) {
  const Sandbox sandbox;
  testing::write_all(sandbox.path("p.json"), R"({"schema": "dflop.plan", "version": 1, "planner": "pytorch",
    "model": "a\u0000b", "cluster": "a100-80g-vtrain:1", "gbs": 32, "layout": "uniform",
    "encoder": {"tp": 2, "pp": 1, "dp": 4, "layers": [27]}, "llm": {"tp": 2, "pp": 1, "dp": 4, "layers": [32]},
    "microbatches": 3, "schedule": "1f1b", "recomputation": "none", "zero1": true, "sequence_parallel": true})");
  // The text after the zero byte is kept: the rest of the name and the list of known names.
  expect_error(sandbox.run("schedule --data traces/datasets/vision_mix.csv --plan p.json"),
               {"p.json: key 'model'", "unknown model 'a\\0b'", "llava-ov-llama3-8b"});
}

/// Every command that reads samples rejects sounds that the model has no encoder for.
TEST(Errors, SoundsOfAModelWithoutSecondEncoder) {
  const Sandbox sandbox;
  testing::write_all(sandbox.path("s.json"), R"({"schema": "dflop.samples", "version": 1, "samples": [
    {"id": "a", "modality": "audio", "encoder_sequences": [[1, 16, 256, 2]], "encoder_output_tokens": 8,
     "llm_tokens": 20}]})");
  const std::string wish = " --data s.json --cluster a100-80g:1 --gbs 1 --iterations 1 --model ";
  for (const char* command : {"plan --planner search", "plan --planner megatron-default", "compare"}) {
    expect_error(sandbox.run(command + wish + "qwen2.5-vl-7b"),
                 {"s.json", "sample 'a'", "second encoder", "'qwen2.5-vl-7b' lacks"});
  }
  const RunResult omni = sandbox.run("plan --planner search" + wish + "qwen2.5-omni-7b");
  EXPECT_EQ(omni.exit_code, 0) << omni.err;
}

/// The same for a schedule file whose samples were changed by hand.
TEST(Errors, ScheduleWithSoundsOfAModelWithoutSecondEncoder) {
  const Sandbox sandbox;
  testing::write_all(sandbox.path("s.json"), R"({"schema": "dflop.samples", "version": 1, "samples": [
    {"id": "a", "modality": "image", "encoder_sequences": [[1, 16, 256]], "encoder_output_tokens": 4,
     "llm_tokens": 20}]})");
  const std::string data = " --data s.json --iterations 1 ";
  ASSERT_EQ(
      sandbox.run("plan --model qwen2.5-vl-7b --cluster a100-80g:1 --gbs 1 --out p.json" + data).exit_code,
      0);
  ASSERT_EQ(sandbox.run("schedule --plan p.json --out good.json" + data).exit_code, 0);
  std::string text = testing::read_all(sandbox.path("good.json"));
  const std::string group = "[1,16,256]";
  const std::size_t at = text.find(group);
  ASSERT_NE(at, std::string::npos) << text;
  testing::write_all(sandbox.path("bad.json"), text.replace(at, group.size(), "[1,16,256,2]"));
  for (const std::string command : {"simulate", "check schedule"}) {
    EXPECT_EQ(sandbox.run(command + " --plan p.json --schedule good.json").exit_code, 0);
    expect_error(sandbox.run(command + " --plan p.json --schedule bad.json"),
                 {"bad.json: iteration 0", "sample 'a'", "second encoder", "'qwen2.5-vl-7b' lacks"});
  }
}

TEST(Errors, Outputs) {
  const Sandbox sandbox;
  const std::string data = "--data d.csv ";
  testing::write_all(sandbox.path("d.csv"), std::string(kHeader) + kGoodRow);
  testing::write_all(sandbox.path("file"), "");
  const std::string target = "--model llava-ov-llama3-8b --cluster a100-80g-vtrain:1 --gbs 2 --iterations 1 ";
  ASSERT_EQ(sandbox.run("plan " + data + target + "--out plan.json").exit_code, 0);
  ASSERT_EQ(sandbox.run("schedule --plan plan.json --iterations 1 " + data + "--out s.json").exit_code, 0);
  const std::string simulate = "simulate --plan plan.json --schedule s.json ";
  const std::vector<std::string> commands = {"data " + data + "--model llava-ov-llama3-8b --samples-out ",
                                             "data " + data + "--model llava-ov-llama3-8b --profile-out ",
                                             "plan " + data + target + "--out ",
                                             "schedule --plan plan.json " + data + "--out ",
                                             simulate + "--out ",
                                             simulate + "--perfetto "};
  for (const std::string& command : commands) {
    expect_error(sandbox.run(command + "missing/dir/f.json"), {"missing/dir/f.json"});
    expect_error(sandbox.run(command + "."), {"directory"});
    EXPECT_EQ(sandbox.run(command + "/dev/full").exit_code, 2) << command;
    expect_error(sandbox.run(command + "''"), {"empty"});
  }
  expect_error(sandbox.run("compare " + data + target + "--out file/inside"), {"file/inside"});
  expect_error(sandbox.run(simulate + "--out plan.json"), {"--plan", "--out"});
  expect_error(sandbox.run(simulate + "--out x.json --perfetto x.json"), {"x.json", "--perfetto", "--out"});
  const std::string presets = std::string(DFLOP_SOURCE_DIR) + "/experiments/presets/";
  testing::write_all(sandbox.path("m.json"), testing::read_all(presets + "models/llava-ov-llama3-8b.json"));
  testing::write_all(sandbox.path("c.json"), testing::read_all(presets + "clusters/h100.json"));
  const std::string own = "plan " + data + "--model m.json --cluster c.json:1 --gbs 2 --iterations 1 --out ";
  expect_error(sandbox.run(own + "m.json"), {"'--out'", "m.json", "'--model'"});
  expect_error(sandbox.run(own + "./c.json"), {"'--out'", "c.json", "'--cluster'"});
  expect_error(sandbox.run(simulate + "--stage-gpu 0=c.json --html c.json"), {"'--html'", "'--stage-gpu'"});
  for (const auto& entry : std::filesystem::directory_iterator(sandbox.path("."))) {
    EXPECT_EQ(entry.path().string().find(".part-"), std::string::npos) << entry.path();
  }
}

TEST(Errors, UnwritableStandardOutput) {
  const Sandbox sandbox;
  for (const char* command : {"models", "manual", "clusters --format json"}) {
    EXPECT_EQ(sandbox.run(std::string(command) + " >/dev/full; exit $?; true").exit_code, 2) << command;
  }
  EXPECT_EQ(sandbox.run("serve </dev/null >/dev/full 2>said; exit $?; true").exit_code, 2);
  EXPECT_EQ(testing::read_all(sandbox.path("said")),
            "dflop: error: standard output: No space left on device\n");
}

}  // namespace errors_test
}  // namespace dflop
