// dflop train starts from the weights of a transformers folder and writes such a folder.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/run.hpp"

namespace dflop {
namespace train_folder_test {

using nlohmann::json;
using testing::RunResult;
using testing::Sandbox;

const std::string kModels = std::string(DFLOP_SOURCE_DIR) + "/tests/golden/models/";

struct TrainFolder : ::testing::Test {
  Sandbox sandbox;

  void SetUp() override { testing::write_all(sandbox.path("d.csv"), testing::image_records()); }
  /// Weights from a folder require a learning rate.
  static std::string with_rate(const std::string& options) {
    const bool says_rate = options.find("--learning-rate") != std::string::npos;
    return options + (says_rate ? "" : " --learning-rate 0.01");
  }
  RunResult train(const std::string& options) {
    return sandbox.run("train --data d.csv --gbs 4 --format json " + with_rate(options));
  }
  /// Trains a model on text only.
  RunResult train_text(const std::string& options) {
    std::string records = testing::image_records(0);
    records = records.substr(0, records.find('\n') + 1);
    for (int i = 0; i < 8; ++i)
      records += "t" + std::to_string(i) + ",made,,text,,,,,,,,,1,," + "," + std::to_string(8 + 5 * i) + "\n";
    testing::write_all(sandbox.path("t.csv"), records);
    return sandbox.run("train --data t.csv --gbs 4 --format json " + with_rate(options));
  }
  std::vector<json> log() {
    std::vector<json> lines;
    std::istringstream in(testing::read_all(sandbox.path("log.jsonl")));
    for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
    return lines;
  }
};

/// With a learning rate of 0 the weights stay unchanged, so the output has all bytes of the input.
TEST_F(TrainFolder, WritesTheWeightsThatItRead) {
  const std::string from = kModels + "internvl-300m-style";
  const RunResult result = train("--model " + from + " --steps 1 --learning-rate 0 --export out");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(testing::read_all(sandbox.path("out/config.json")), testing::read_all(from + "/config.json"));
  const auto size = std::filesystem::file_size(sandbox.path("out/model.safetensors"));
  // Headers may differ in the order of tensors, but the data may not: the file has the same length except for
  // its header.
  EXPECT_NEAR(static_cast<double>(size),
              static_cast<double>(std::filesystem::file_size(from + "/model.safetensors")), 4096);
  const RunResult again = train("--model out --steps 1 --learning-rate 0");
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(testing::rows_of(again.out)[0]["loss"], testing::rows_of(result.out)[0]["loss"]);
}

/// The weights come from the last checkpoint if there is one. Otherwise each rank writes its weights for the
/// export.
TEST_F(TrainFolder, WritesTheSameWithAndWithoutCheckpoints) {
  const std::string run = "--model " + kModels + "internvl-300m-style --pp 2 --microbatches 2 --steps 2";
  ASSERT_EQ(train(run + " --export alone").exit_code, 0);
  ASSERT_EQ(train(run + " --export beside --checkpoint c").exit_code, 0);
  ASSERT_EQ(train(run + " --export later --checkpoint c --resume").exit_code, 0);  // no step is left to run
  const std::string alone = testing::read_all(sandbox.path("alone/model.safetensors"));
  EXPECT_NE(alone, testing::read_all(kModels + "internvl-300m-style/model.safetensors"));
  for (const char* other : {"beside", "later"}) {
    EXPECT_EQ(alone, testing::read_all(sandbox.path(other) / "model.safetensors")) << other;
  }
  EXPECT_FALSE(sandbox.has("alone.part") || sandbox.has("alone/pieces") || sandbox.has("alone/.lock"));
}

/// The learning rate that suits random weights would ruin a released model.
TEST_F(TrainFolder, NeedsALearningRateForWeightsOfAFolder) {
  const std::string run = "train --data d.csv --gbs 4 --steps 1 --model " + kModels + "internvl-300m-style ";
  testing::expect_error(sandbox.run(run),
                        {"option '--learning-rate'", "0.01 is meant for random weights", "as 1e-5"});
  EXPECT_EQ(sandbox.run(run + "--learning-rate 0.01").exit_code, 0);
  EXPECT_EQ(sandbox.run(run + "--random-weights").exit_code, 0);
}

TEST_F(TrainFolder, RejectsExportsOverFilesBeforeTraining) {
  std::filesystem::create_directory(sandbox.path("out"));
  testing::write_all(sandbox.path("out/kept"), "x");
  testing::expect_error(train("--model " + kModels + "internvl-300m-style --steps 1 --export out"),
                        {"out: cannot write: something else already has this name"});
  EXPECT_TRUE(sandbox.has("out/kept"));
}

TEST_F(TrainFolder, RejectsExportsIntoTheWorkingFolderOrCheckpoints) {
  const std::string run = "--model " + kModels + "internvl-300m-style --steps 1 ";
  for (const char* folders : {"--export o --checkpoint o/c", "--export c/o --checkpoint c",
                              "--export o --checkpoint o", "--export o --checkpoint o.part"}) {
    const RunResult result = train(run + folders);
    EXPECT_EQ(result.exit_code, 2) << folders;
    EXPECT_NE(result.err.find("option '--export'"), std::string::npos) << result.err;
    EXPECT_FALSE(sandbox.has("o") || sandbox.has("c") || sandbox.has("o.part")) << folders;
  }
  EXPECT_EQ(train(run + "--export outer --checkpoint out").exit_code, 0);
  testing::expect_error(train(run + "--export ."), {".: cannot write: the working folder would be replaced"});
}

/// If the weights have a separate head, the exported config unties it: not all readers notice that the head
/// is stored.
TEST_F(TrainFolder, ExportsWhatItsConfigSays) {
  std::filesystem::copy(kModels + "llama3", sandbox.path("m"));
  std::string config = testing::read_all(kModels + "llama3/config.json");
  const std::string untied = "\"tie_word_embeddings\": false";
  ASSERT_NE(config.find(untied), std::string::npos);
  const std::string expected = config;
  testing::write_all(sandbox.path("m/config.json"),
                     config.replace(config.find(untied), untied.size(), "\"tie_word_embeddings\": true"));
  ASSERT_EQ(train_text("--model m --steps 1 --export out").exit_code, 0);
  EXPECT_EQ(testing::read_all(sandbox.path("out/config.json")), expected);
}

TEST_F(TrainFolder, NamesTensorsThatAreNotFinite) {
  std::filesystem::copy(kModels + "llama3", sandbox.path("m"));
  std::string weights = testing::read_all(sandbox.path("m/model.safetensors"));
  weights.replace(weights.size() - 4, 4, "\xFF\xFF\xFF\xFF");  // NaN in any dtype
  testing::write_all(sandbox.path("m/model.safetensors"), weights);
  const RunResult result = train_text("--model m --steps 1");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("m/model.safetensors: tensor '"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("expected finite numbers"), std::string::npos) << result.err;
  testing::write_all(sandbox.path("m/model.safetensors"),
                     "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
  testing::expect_error(train_text("--model m --steps 1"), {"m/model.safetensors", "git lfs pull"});
}

TEST_F(TrainFolder, RejectsImpossibleExportsBeforeTraining) {
  testing::write_all(sandbox.path("file"), "x");
  testing::expect_error(
      train_text("--model " + kModels + "llama3 --steps 1 --export file/out --log log.jsonl"), {"file/out"});
  EXPECT_FALSE(sandbox.has("log.jsonl"));
}

TEST_F(TrainFolder, SaysThatAPlanWasMadeForAnotherModel) {
  std::filesystem::copy(kModels + "llama3", sandbox.path("m"));
  ASSERT_EQ(train_text("--hf m --steps 1").exit_code, 0);  // writes t.csv
  const RunResult planned = sandbox.run(
      "plan --hf m --data t.csv --cluster a100-80g:1 --planner search --gbs 4 --iterations 1 --tp 1 --pp 1 --dp 4 "
      "--out p.json");
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const std::string note = "note: p.json was made with an earlier version of m";
  const RunResult same = train_text("--plan p.json --steps 1");
  ASSERT_EQ(same.exit_code, 0) << same.err;
  EXPECT_EQ(same.err.find(note), std::string::npos) << same.err;
  json config = json::parse(testing::read_all(sandbox.path("m/config.json")));
  config["rms_norm_eps"] = 1e-3;
  testing::write_all(sandbox.path("m/config.json"), config.dump());
  const RunResult changed = train_text("--plan p.json --steps 1");
  EXPECT_EQ(changed.exit_code, 0);
  EXPECT_NE(changed.err.find(note), std::string::npos) << changed.err;
}

TEST_F(TrainFolder, SaysThatAPlanWasMadeForAnotherCluster) {
  json cluster =
      json::parse(testing::read_all(DFLOP_SOURCE_DIR "/experiments/presets/clusters/a100-80g.json"));
  testing::write_all(sandbox.path("own.json"), cluster.dump());
  const std::string data = " --data " DFLOP_SOURCE_DIR "/traces/datasets/vision_mix.csv ";
  ASSERT_EQ(
      sandbox
          .run("plan --planner megatron --model small-vlm --cluster own.json:1 --gbs 16 --iterations 1 --out "
               "p.json" +
               data)
          .exit_code,
      0);
  ASSERT_EQ(sandbox.run("schedule --plan p.json --iterations 1 --out s.json" + data).exit_code, 0);
  const std::string note = "note: p.json was made with an earlier version of own.json:1";
  const std::string simulate = "simulate --plan p.json --schedule s.json";
  const std::string compared =
      "compare --systems pytorch --model small-vlm --cluster own.json:1 --gbs 16 --iterations "
      "1 --plan p.json" +
      data;
  for (const std::string& command : {simulate, compared})
    EXPECT_EQ(sandbox.run(command).err.find(note), std::string::npos) << command;
  cluster["gpus_per_node"] = 16;
  testing::write_all(sandbox.path("own.json"), cluster.dump());
  for (const std::string& command : {simulate, compared})
    EXPECT_NE(sandbox.run(command).err.find(note), std::string::npos) << command;
}

/// Sizes do not define a model completely. With other forms of its layers it is another model, and the
/// weights do not apply.
TEST_F(TrainFolder, ResumesOnlyWithTheSameFormsOfLayers) {
  std::filesystem::create_directory(sandbox.path("m"));
  json config = json::parse(testing::read_all(kModels + "llama3/config.json"));
  const auto run = [&](const std::string& options) {
    testing::write_all(sandbox.path("m/config.json"), config.dump());
    return train_text("--model m --random-weights --checkpoint c " + options);
  };
  ASSERT_EQ(run("--steps 1").exit_code, 0);
  const json before = config;
  const auto refuses = [&](const char* key, const json& value, const std::string& part) {
    config = before;
    config[key] = value;
    const RunResult result = run("--steps 2 --resume");
    EXPECT_EQ(result.exit_code, 2);
    const std::size_t expected = result.err.find("the checkpoint is from another run: expected model");
    EXPECT_LT(result.err.find(part, expected), result.err.find("found 'encoder", expected)) << result.err;
  };
  refuses("rms_norm_eps", 0.1, "RMS norm 0.1");
  refuses("attention_bias", true, "biases of qkv");
  refuses("tie_word_embeddings", true, "tied embeddings");
  config = before;
  EXPECT_EQ(run("--steps 2 --resume").exit_code, 0);
}

/// A config may claim that there are no biases although the weights have some.
TEST_F(TrainFolder, NamesTensorsThatItDoesNotUse) {
  std::filesystem::copy(kModels + "llama-biases", sandbox.path("m"));
  json config = json::parse(testing::read_all(kModels + "llama-biases/config.json"));
  EXPECT_EQ(train_text("--model m --steps 1").err.find("not used"), std::string::npos);
  config["mlp_bias"] = false;
  testing::write_all(sandbox.path("m/config.json"), config.dump());
  const RunResult result = train_text("--model m --steps 1");
  EXPECT_NE(result.err.find("tensors of m not used, because the model has no part for them: "
                            "model.layers.0.mlp.down_proj.bias"),
            std::string::npos)
      << result.err;
}

/// Released configs contradict themselves and their weights about tied embeddings. The weights are right.
TEST_F(TrainFolder, TiesEmbeddingsLikeTheWeights) {
  struct Case {
    const char* model;
    bool root, text;
  };
  for (const Case& one :
       {Case{"internvl-300m-style", false, true}, Case{"internvl-300m-style", true, false},
        Case{"llava-onevision-qwen2", true, false}, Case{"llava-onevision-qwen2", true, true}}) {
    SCOPED_TRACE(std::string(one.model) + (one.root ? " tied around" : "") +
                 (one.text ? " tied within" : ""));
    const std::string run = " --steps 2 --learning-rate 0.01 --export out";
    std::filesystem::copy(kModels + one.model, sandbox.path("m"));
    const RunResult expected = train("--model m" + run);
    ASSERT_EQ(expected.exit_code, 0) << expected.err;
    const std::string weights = testing::read_all(sandbox.path("out/model.safetensors"));
    json config = json::parse(testing::read_all(sandbox.path("m/config.json")));
    config["tie_word_embeddings"] = one.root;
    config["text_config"]["tie_word_embeddings"] = one.text;
    testing::write_all(sandbox.path("m/config.json"), config.dump());
    std::filesystem::remove_all(sandbox.path("out"));
    const RunResult found = train("--model m" + run);
    ASSERT_EQ(found.exit_code, 0) << found.err;
    for (const int step : {0, 1})
      EXPECT_EQ(testing::rows_of(found.out)[step]["loss"], testing::rows_of(expected.out)[step]["loss"]);
    EXPECT_TRUE(testing::read_all(sandbox.path("out/model.safetensors")) == weights);
    std::filesystem::remove_all(sandbox.path("out"));
    std::filesystem::remove_all(sandbox.path("m"));
  }
}

/// With four heads and two KV heads, tp 4 can split only the former.
TEST_F(TrainFolder, ChoosesPlansThatItCanRun) {
  const std::string model = "--model " + kModels + "llama3 --steps 1 ";
  for (const char* wish : {"--dp 2", "--gradient-bucket 1000", "--setting published"}) {
    const RunResult result = train_text(model + wish);
    EXPECT_EQ(result.exit_code, 0) << wish << ": " << result.err;
  }
  const RunResult result = train_text(model + "--tp 4");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.err.find("a tp over which the model can be split"), std::string::npos) << result.err;
}

TEST_F(TrainFolder, RejectsOptionsWithoutEffect) {
  const std::string model = "--model " + kModels + "llama3 --steps 1 ";
  testing::expect_error(train_text(model + "--encoder-rate 0.5"), {"--encoder-rate", "has no encoder"});
  testing::expect_error(train_text(model + "--rate-floor 0.5"), {"--rate-floor", "--rate-schedule"});
  testing::expect_error(train_text(model + "--chat llama3"), {"--chat", "records or samples"});
}

TEST_F(TrainFolder, ExportsNothingWithoutAFolder) {
  testing::expect_error(train("--model tiny-vlm --steps 1 --export out"),
                        {"--export", "folder of a Transformers model"});
}

TEST_F(TrainFolder, NamesMissingFilesOfAFolder) {
  std::filesystem::create_directory(sandbox.path("empty"));
  testing::expect_error(train("--model empty --steps 1"), {"folder 'empty'", "config.json"});
  std::filesystem::create_directory(sandbox.path("bare"));
  std::filesystem::copy(kModels + "qwen2.5-vl/config.json", sandbox.path("bare/config.json"));
  testing::expect_error(train("--model bare --steps 1"), {"bare", "model.safetensors"});
}

TEST_F(TrainFolder, RejectsAnArchitectureByName) {
  std::filesystem::create_directory(sandbox.path("other"));
  testing::write_all(sandbox.path("other/config.json"), R"({"model_type": "mamba"})");
  testing::expect_error(train("--model other --steps 1"), {"key 'model_type'", "\"mamba\"", "qwen2_5_vl"});
}

/// The rate rises to 2e-3 in two steps, then a cosine falls to a tenth of it by step five: by hand 1e-3,
/// 2e-3, 2e-3 and 0.0002 + 0.0018 (1 + cos(pi k / 3)) / 2 for k 1 and 2.
TEST_F(TrainFolder, LearningRatesFollowTheSchedule) {
  const RunResult result = train(
      "--steps 5 --learning-rate 0.002 --warm-up 2 --rate-schedule cosine --rate-floor 0.1 --clip-norm 1 --log "
      "log.jsonl");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<json> lines = log();
  ASSERT_EQ(lines.size(), 5U);
  const double expected[] = {1e-3, 2e-3, 2e-3, 1.55e-3, 0.65e-3};
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(lines[i]["learning_rate"].get<double>(), expected[i], 1e-12);
    EXPECT_EQ(lines[i]["step"], i + 1);
    EXPECT_GT(lines[i]["gradient_norm"].get<double>(), 0);
  }
}

/// MFU is FLOP divided by time and peak, so MFU times time times peak is the same for each peak.
TEST_F(TrainFolder, FiguresAreComplete) {
  ASSERT_EQ(train("--steps 2 --log log.jsonl --tensorboard curves --peak-tflops 0.5").exit_code, 0);
  ASSERT_EQ(train("--steps 2 --log log.jsonl --tensorboard curves --peak-tflops 2").exit_code, 0);
  ASSERT_EQ(train("--steps 1 --log log.jsonl").exit_code, 0);
  const std::vector<json> lines = log();
  ASSERT_EQ(lines.size(), 5U);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto flop = [&](std::size_t at, double peak) {
      return lines[at]["mfu"].get<double>() * lines[at]["iteration_s"].get<double>() * peak;
    };
    EXPECT_GT(flop(i, 0.5), 0);
    EXPECT_NEAR(flop(i, 0.5), flop(i + 2, 2), 1e-9 * flop(i, 0.5));
    EXPECT_EQ(lines[i]["samples"], 4);
    EXPECT_GT(lines[i]["encoder_tokens"].get<int>(), 0);
  }
  EXPECT_EQ(lines[0]["between_steps_s"], nullptr);  // a run's first step has no previous step
  EXPECT_GT(lines[1]["between_steps_s"].get<double>(), 0);
  EXPECT_EQ(lines[4]["mfu"], nullptr);
  EXPECT_EQ(lines[4]["data_wait_s"], nullptr);  // synthetic contents
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(sandbox.path("curves"))) {
    EXPECT_GT(entry.file_size(), 40U);  // larger than the file header
    ++files;
  }
  EXPECT_EQ(files, 2U);
}

TEST_F(TrainFolder, RejectsAPeakOfZero) {
  testing::expect_error(train("--steps 1 --peak-tflops 0"), {"--peak-tflops"});
}

TEST_F(TrainFolder, AFrozenModelLearnsNothing) {
  const std::string frozen = "--encoder-rate 0 --connector-rate 0 --llm-rate 0 --checkpoint c";
  ASSERT_EQ(train("--steps 3 --log log.jsonl " + frozen).exit_code, 0);
  ASSERT_EQ(train("--steps 4 --log log.jsonl --resume " + frozen).exit_code, 0);
  EXPECT_EQ(log().size(), 4U);              // a resumed run appends to the file
  EXPECT_EQ(log()[0]["gradient_norm"], 0);  // nothing is trained
}

TEST_F(TrainFolder, StopsWhereGradientsAreNotFinite) {
  const RunResult result = train("--steps 9 --learning-rate 1000 --clip-norm 1e12 --weight-decay 1000");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("the norm of all gradients"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("The step was not taken"), std::string::npos) << result.err;
}

/// Weights that move by 1000 soon make the loss NaN, and that step gets no checkpoint.
TEST_F(TrainFolder, EndsWhereTheLossIsNotFinite) {
  const RunResult result =
      train("--model tiny-vlm --steps 9 --learning-rate 1000 --checkpoint c --every 1 --record r.json");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("the loss is"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("--clip-norm"), std::string::npos) << result.err;
  EXPECT_TRUE(sandbox.has("c/step-00000001"));
  EXPECT_FALSE(sandbox.has("c/step-00000009"));
  const json record = json::parse(testing::read_all(sandbox.path("r.json")));
  EXPECT_FALSE(record.at("iterations").empty()) << "of the steps before";
}

}  // namespace train_folder_test
}  // namespace dflop
