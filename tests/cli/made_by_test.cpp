// Written files record how they were made, printed results do not, and mismatched files are reported.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/run.hpp"

namespace dflop {
namespace made_by_test {

using nlohmann::json;
using testing::RunResult;
using testing::Sandbox;

const std::string kData = " --data traces/datasets/vision_mix.csv ";

struct MadeBy : ::testing::Test {
  Sandbox sandbox;

  void SetUp() override {
    plan("tiny-vlm", "p.json");
    ran("schedule --plan p.json --iterations 2 --seed 7 --out s.json" + kData);
    ran("simulate --plan p.json --schedule s.json --out t.json");
  }
  std::string ran(const std::string& command) {
    const RunResult result = sandbox.run(command);
    EXPECT_EQ(result.exit_code, 0) << command << "\n" << result.err;
    return result.out;
  }
  std::string plan(const std::string& model, const std::string& file) {
    return ran("plan --cluster a100-80g:1 --gbs 16 --format json --model " + model + " --out " + file +
               kData);
  }
  json made_by(const std::string& file) {
    return json::parse(testing::read_all(sandbox.path(file))).value("made_by", json());
  }
};

TEST_F(MadeBy, FilesHaveItAndStandardOutputDoesNot) {
  const json of_plan = made_by("p.json");
  EXPECT_EQ(of_plan["command"].get<std::string>().substr(0, 11), "dflop plan ");
  EXPECT_EQ(of_plan["model"]["name"], "tiny-vlm");
  EXPECT_EQ(of_plan["data"]["samples"], 16000);
  EXPECT_EQ(of_plan["data"]["assumptions"].size(), 1u);  // frame rates
  EXPECT_EQ(plan("tiny-vlm", "again.json").find("made_by"), std::string::npos);
  const json of_schedule = made_by("s.json");
  EXPECT_EQ(of_schedule["seed"], 7);
  EXPECT_EQ(of_schedule["gbs"], 16);
  EXPECT_EQ(of_schedule["data"]["hash"], of_plan["data"]["hash"]);
  const json of_timeline = made_by("t.json");
  EXPECT_EQ(of_timeline["plan"]["hash"], of_schedule["plan"]["hash"]);
  EXPECT_EQ(of_timeline["data"], of_schedule["data"]);
  EXPECT_EQ(of_timeline["seed"], 7);
  EXPECT_GE(of_timeline["machine"]["cores"], 1);
  EXPECT_FALSE(of_timeline["machine"].contains("others"));  // simulated, so the load does not matter
}

TEST_F(MadeBy, ReplayPrintsIt) {
  const RunResult replay = sandbox.run("replay --trace t.json");
  EXPECT_EQ(replay.exit_code, 0);
  EXPECT_NE(replay.err.find("dflop: t.json:\n  made by   dflop "), std::string::npos) << replay.err;
  EXPECT_NE(replay.err.find("\n  batches   16 samples, seed 7\n"), std::string::npos) << replay.err;
  EXPECT_EQ(replay.out.find("made by"), std::string::npos);
}

TEST_F(MadeBy, LiveRecordsSayTheLoadOfTheMachine) {
  ran("train --model tiny-vlm --gbs 4 --steps 2 --record r.json" + kData);
  const json of_record = made_by("r.json");
  EXPECT_EQ(of_record["data"]["hash"], made_by("p.json")["data"]["hash"]);
  EXPECT_EQ(of_record["first_iteration"], 0);
  // A run may end before the machine has counted a tick of its time.
  if (of_record["machine"].contains("others")) {
    EXPECT_GE(of_record["machine"]["others"], 0.0);
  }
}

TEST_F(MadeBy, MixingNeedsAnOption) {
  // The same plan, but for another data set: the first 400 records.
  std::string rows = testing::read_all(sandbox.path("traces/datasets/vision_mix.csv"));
  std::size_t end = 0;
  for (int row = 0; row < 400; ++row) end = rows.find('\n', end) + 1;
  testing::write_all(sandbox.path("part.csv"), rows.substr(0, end));
  ran("schedule --plan p.json --iterations 2 --data part.csv --out other.json");
  const std::string replay = "replay --trace t.json --plan p.json --schedule other.json ";
  testing::expect_error(sandbox.run(replay), {"p.json: made with other inputs than other.json: data",
                                              "vision_mix.csv", "part.csv", "--mixed"});
  const RunResult mixed = sandbox.run(replay + "--mixed");
  EXPECT_EQ(mixed.exit_code, 0) << mixed.err;
  EXPECT_NE(mixed.err.find("dflop: note: p.json was made with other inputs"), std::string::npos) << mixed.err;
}

/// Samples of vision_mix.csv are longer than 100 tokens, and samples of short.csv are not.
TEST_F(MadeBy, OtherCutsAreNotedWhereTheyChangeSamples) {
  std::string rows = testing::read_all(sandbox.path("traces/datasets/vision_mix.csv"));
  rows.resize(rows.find('\n') + 1);
  for (int row = 0; row < 16; ++row) rows += "t" + std::to_string(row) + ",s,,image,1,1,64x64,,,,,,5,0,9,9\n";
  testing::write_all(sandbox.path("short.csv"), rows);
  const std::string by_short = "plan --cluster a100-80g:1 --gbs 16 --model tiny-vlm --data short.csv ";
  ran(by_short + "--out short.json");
  ran(by_short + "--max-tokens 100 --out short100.json");
  ran("plan --cluster a100-80g:1 --gbs 16 --model tiny-vlm --max-tokens 100 --out p100.json" + kData);
  const std::string mix = "traces/datasets/vision_mix.csv";
  struct Case {
    std::string plan;
    std::string data;
    std::string note;
  };
  const Case cases[] = {
      {"short.json", "short.csv", ""},
      {"short.json", "short.csv --max-tokens 100", ""},
      {"short100.json", mix + " --max-tokens 100", ""},
      {"p100.json", mix + " --max-tokens 100", ""},
      {"short.json", mix + " --max-tokens 100",
       "short.json was made for samples that are cut at 1024 tokens; these are cut at 100 "},
      {"p100.json", "short.csv",
       "p100.json was made for samples that are cut at 100 tokens; these are cut at 1024"}};
  for (const Case& one : cases) {
    const std::string command = "schedule --iterations 1 --plan " + one.plan + " --data " + one.data;
    const RunResult result = sandbox.run(command);
    EXPECT_EQ(result.exit_code, 0) << command << "\n" << result.err;
    if (one.note.empty()) {
      EXPECT_EQ(result.err.find("was made for samples"), std::string::npos) << command << "\n" << result.err;
    } else {
      EXPECT_NE(result.err.find(one.note), std::string::npos) << command << "\n" << result.err;
    }
  }
}

/// tiny-vlm takes 1024 tokens. Samples of 1025 are longer and are not cut, and samples of 1024 fit.
TEST_F(MadeBy, SamplesLongerThanTheModelsLimitAreReported) {
  const auto samples_of = [](int tokens) {
    json file{{"schema", "dflop.samples"}, {"version", 1}};
    for (int i = 0; i < 16; ++i) {
      file["samples"].push_back({{"id", "s" + std::to_string(i)},
                                 {"modality", "image"},
                                 {"encoder_sequences", json::array({{1, 16, 256}})},
                                 {"encoder_output_tokens", 16},
                                 {"llm_tokens", i < 4 ? tokens : 100}});
    }
    return file.dump();
  };
  testing::write_all(sandbox.path("long.json"), samples_of(1025));
  testing::write_all(sandbox.path("fits.json"), samples_of(1024));
  const std::string longer =
      "4 of 16 samples are longer than the model's 1024 tokens, and samples files are not cut";
  for (const std::string command :
       {"plan --model tiny-vlm --cluster a100-80g:1 --gbs 16", "schedule --plan p.json --iterations 1",
        "compare --model tiny-vlm --cluster a100-80g:1 --gbs 16 --iterations 1 --budget 1"}) {
    const RunResult told = sandbox.run(command + " --data long.json");
    EXPECT_NE((told.out + told.err).find(longer), std::string::npos) << command << told.out << told.err;
    const RunResult fits = sandbox.run(command + " --data fits.json");
    EXPECT_EQ((fits.out + fits.err).find("samples are longer"), std::string::npos) << command;
  }
}

}  // namespace made_by_test
}  // namespace dflop
